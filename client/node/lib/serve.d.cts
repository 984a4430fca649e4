import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Client } from './index.cjs'

export interface HandlerOptions {
  /** The address that the server listens on. On loopback it answers to loopback's names only. */
  host?: string
  /** The token that clients have to show: 16 characters at least. */
  token?: string
  /** Which pages of other servers may read; "*": all. */
  origin?: string
  /** Only names that begin so are listed and opened. */
  prefix?: string
  /** Pack tables for clients that take gzip or zstd. Default false. */
  compress?: boolean
}

/** A listener for http.createServer(): `/` lists objects, `/objects/NAME` streams one as Arrow IPC, `/bytes/NAME` one as it is, `/live` sends events. */
export function createHandler (client: Client, options?: HandlerOptions): (request: IncomingMessage, response: ServerResponse) => void
