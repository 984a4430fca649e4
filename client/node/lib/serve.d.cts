import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Client } from './index.cjs'

export interface HandlerOptions {
  /** The address that the server listens on. On loopback the server accepts only loopback's names as `Host`. */
  host?: string
  /** The token that requests must carry: at least 16 characters. */
  token?: string
  /** The origin whose pages may read, too, beside the server's own; "*": all. */
  origin?: string
  /** Only names that begin so are listed and opened. */
  prefix?: string
  /** Pack tables for clients that take gzip or zstd. Default false. */
  compress?: boolean
}

/** A listener for http.createServer(): `/` lists objects, `/objects/NAME` streams one as Arrow IPC, `/bytes/NAME` one as it is, `/live` sends events. */
export function createHandler (client: Client, options?: HandlerOptions): (request: IncomingMessage, response: ServerResponse) => void
