import type { Client, Column, CreateOptions, NDArray, Table } from './index.cjs'

// The modules of RAPIDS are handed over, `import * as cuda from '@rapidsai/cuda'`: their own declarations say what comes.

/** A typed array over an array, or a column without nulls: no copy. It is for reading, and keeps the object's lease. */
export function toBuffer (object: NDArray | Column, cuda: object): Promise<any>
/**
 * Publishes a typed array of `@rapidsai/cuda`, by a copy on its GPU, and resolves with the version. Memory that
 * `@rapidsai` made says its GPU in this process' numbering: where that is not the daemon's, `device` names the GPU.
 */
export function putBuffer (
  client: Client, name: string, view: { readonly length: number }, cuda: object, options?: CreateOptions): Promise<number>
/** A Series with the column's content, which it copies on the GPU. */
export function toSeries (column: Column, cudf: object): Promise<any>
/** A DataFrame with the table's columns, or those that are named. */
export function toDataFrame (table: Table, cudf: object, names?: readonly string[]): Promise<any>
