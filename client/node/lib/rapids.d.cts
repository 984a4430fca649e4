import type { Client, Column, CreateOptions, NDArray, RequestOptions, Table } from './index.cjs'

// The caller passes the modules of RAPIDS, `import * as cuda from '@rapidsai/cuda'`, 22.12 or 26.4. Their declarations have the
// types.

/** A typed array over an array, or over a column without nulls. No copy; only for reading. It keeps the lease. */
export function toBuffer (object: NDArray | Column, cuda: object, options?: RequestOptions): Promise<any>
/**
 * Publishes a typed array of `@rapidsai/cuda`, by a copy on its GPU, and resolves with the version. Memory made by
 * `@rapidsai` gives its GPU in this process' numbering. If the daemon numbers GPUs differently, name it by `device`.
 */
export function putBuffer (
  client: Client, name: string, view: { readonly length: number }, cuda: object, options?: CreateOptions): Promise<number>
/** A Series with the column's content, which it copies on the GPU. A dictionary becomes a Series of categories. */
export function toSeries (column: Column, cudf: object, options?: RequestOptions): Promise<any>
/** A DataFrame with the table's columns, or those that are named. */
export function toDataFrame (
  table: Table, cudf: object, names?: readonly string[], options?: RequestOptions): Promise<any>
