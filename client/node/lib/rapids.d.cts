import type { Client, Column, CreateOptions, NDArray, RequestOptions, Table } from './index.cjs'

// Pass the modules of RAPIDS, 22.12 or 26.4: `import * as cuda from '@rapidsai/cuda'`. Their declarations have the types.

/** Returns a read-only typed array over an array, or a column without nulls, without a copy. It keeps the lease. */
export function toBuffer (object: NDArray | Column, cuda: object, options?: RequestOptions): Promise<any>
/**
 * Publishes a copy of a typed array of `@rapidsai/cuda` on its GPU; resolves with the version. If the daemon numbers GPUs
 * differently than this process, name the GPU by `device`.
 */
export function putBuffer (
  client: Client, name: string, view: { readonly length: number }, cuda: object, options?: CreateOptions): Promise<number>
/** Returns a Series with a copy of the column on the GPU. A dictionary becomes a Series of categories. */
export function toSeries (column: Column, cudf: object, options?: RequestOptions): Promise<any>
/** Returns a DataFrame with copies of the table's columns, or of those in `names`, on the GPU. */
export function toDataFrame (
  table: Table, cudf: object, names?: readonly string[], options?: RequestOptions): Promise<any>
