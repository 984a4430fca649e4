/// <reference types="node" />
// @ts-ignore
import type * as arrow from 'apache-arrow'
import type { Client, NDArray, OpenOptions, Publishable, Table } from './index.cjs'

/** A block of a collection. */
export interface Partition {
  name: string
  /** The host of the daemon that has it. */
  host: string
  device: string
  bytes: number
  /** Of a frame or a series. */
  rows?: number
  /** Of an array. */
  shape?: number[]
}

/** A published Dask DataFrame, Series or Array. It keeps the partitions from being deleted until release(). */
export class Dataset<T extends Table | NDArray = Table> implements AsyncIterable<T> {
  private constructor ()
  readonly name: string
  readonly kind: 'frame' | 'series' | 'array'
  readonly columnNames: string[]
  readonly partitions: Partition[]
  /** The index's values between partitions, if they are known; a date or time is an object of one member. */
  readonly divisions?: unknown[]
  /** Of all partitions; undefined for an array. */
  readonly numRows: number | undefined
  readonly released: boolean
  /**
   * Opens partition `i`, which the caller releases: a Table with the columns and perhaps the index, or an NDArray.
   * NotFoundError: it is in a daemon of another machine. (gpubufd-peer brings those published with scope="cluster".)
   */
  open (i: number, options?: OpenOptions): Promise<T>
  /** The partitions, one after the other; each is released when the next one is asked for. */
  [Symbol.asyncIterator] (): AsyncGenerator<T, void, undefined>
  /** All rows as one table over the shared memory, valid until release(); copies of what is on a GPU. */
  toArrow (options?: { columns?: string[], signal?: AbortSignal }): Promise<arrow.Table>
  /** Gives the collection back. If it has been replaced and nobody else reads it, its partitions are deleted. */
  release (): Promise<void>
  [Symbol.asyncDispose] (): Promise<void>
}

/**
 * The collection that a Dask program published under `name` by `gpubufd.dask.publish()`. Only its manifest is read. NotFoundError: there
 * is no such name, `timeout` milliseconds later; InvalidError: it is no publication of Dask's.
 */
export function getDataset<T extends Table | NDArray = Table> (
  client: Client, name: string, options?: { timeout?: number, signal?: AbortSignal }): Promise<Dataset<T>>

/**
 * Publishes tables as the partitions of a Dask DataFrame, which `gpubufd.dask.load(name)` loads in Python. All have the same
 * columns. Its index counts rows. The name appears when all partitions are there. ExistsError: it is taken.
 */
export function publishDataset (
  client: Client, name: string, tables: Iterable<Publishable> | AsyncIterable<Publishable>,
  options?: { replace?: boolean, mode?: string | number, device?: string, evict?: 'spill' | 'drop' | 'keep', signal?: AbortSignal }): Promise<void>
