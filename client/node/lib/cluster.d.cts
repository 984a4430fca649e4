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
  /** The version in that machine's daemon. */
  version: number
  bytes: number
  /** When the machine published or copied it, by its own clock, in milliseconds since 1970; 0: unknown. */
  since: number
  /** The machine's address. Absent: it is this machine. */
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

// Each function asks this machine's gpubufd-peer. ConnectError: no peer answers. UnavailableError: it cannot answer now.

/**
 * Returns the machines that have the name, this one first. NotFoundError: none has it. `why`: why other machines could not
 * be asked, so that some may be missing.
 */
export function where (name: string, options?: ClusterOptions): Promise<Place[] & { why?: string }>
/** Returns the names of the cluster that begin with `prefix`, in order. */
export function list (prefix?: string, options?: ClusterOptions): Promise<Name[]>
/** Returns the other machines of the cluster that are reachable now, in the order of their names. */
export function peers (options?: ClusterOptions): Promise<Peer[]>
/** Returns the peer's metrics as docs/METRICS.md names them, without `gpubufd_peer_`; `fetch_failures_total` is an object. */
export function stats (options?: ClusterOptions): Promise<Record<string, number | Record<string, number>>>
