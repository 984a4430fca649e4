/// <reference types="node" />

export interface ClusterOptions {
  /** The peer's socket (its option --query). Default: $GPUBUFD_PEER_SOCKET, else /run/gpubufd-peer/peer.sock. */
  socket?: string
  /** Milliseconds to wait for each part of the answer. Default 30 000. */
  timeout?: number
  signal?: AbortSignal
}

/** A machine that has a name's content. */
export interface Place {
  node: string
  /** The machine that published the name. */
  origin: string
  /** Of the object in that machine's daemon. */
  version: number
  bytes: number
  /** When the machine published or copied it, by its own clock, in milliseconds since 1970; 0: it did not say. */
  since: number
  /** Where the machine is reached. Absent: it is this one. */
  host?: string
  port?: number
  isCopy: boolean
}

/** A name that a machine has published. */
export interface Name {
  name: string
  node: string
  version: number
  bytes: number
  since: number
  /** How many other machines have a copy. */
  copies: number
}

/** Another machine of the cluster. */
export interface Peer {
  node: string
  host: string
  port: number
}

// Each asks gpubufd-peer of this machine. ConnectError: no peer answers; UnavailableError: it cannot answer now.

/**
 * The machines that have the name, this one first. NotFoundError: none has it. `why`: why other machines could not be
 * asked, so that some may be missing.
 */
export function where (name: string, options?: ClusterOptions): Promise<Place[] & { why?: string }>
/** The names of the cluster that begin with `prefix`, in their order. */
export function list (prefix?: string, options?: ClusterOptions): Promise<Name[]>
/** The other machines of the cluster that are there now, in the order of their names. */
export function peers (options?: ClusterOptions): Promise<Peer[]>
/** The peer's figures, as docs/METRICS.md has them, without `gpubufd_peer_`; `fetch_failures_total` is an object. */
export function stats (options?: ClusterOptions): Promise<Record<string, number | Record<string, number>>>
