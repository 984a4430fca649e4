/// <reference types="node" />
// @ts-ignore
import type * as arrow from 'apache-arrow'
import type { Client, NDArray, OpenOptions, Publishable, Table } from './index.cjs'

/** A part of a collection: one object in one daemon. */
export interface Partition {
  name: string
  /** The host of the daemon that has it. */
  host: string
  device: string
  bytes: number
  /** In a frame or a series. */
  rows?: number
  /** In an array, in elements. */
  shape?: number[]
}

/** A published Dask DataFrame, Series or Array. Its partitions are not deleted before release(). */
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
   * Opens partition `i`, which you release: a Table with the columns and perhaps the index, or an NDArray. NotFoundError: it
   * is on another machine, and was not published with scope="cluster".
   */
  open (i: number, options?: OpenOptions): Promise<T>
  /** Iterates over the partitions; each is released when the next one is requested. */
  [Symbol.asyncIterator] (): AsyncGenerator<T, void, undefined>
  /** Returns all rows as one table over the shared memory, valid until release(); partitions on a GPU are copied. */
  toArrow (options?: { columns?: string[], signal?: AbortSignal }): Promise<arrow.Table>
  /** Releases the collection. If it has been replaced and nobody else reads it, its partitions are deleted. */
  release (): Promise<void>
  [Symbol.asyncDispose] (): Promise<void>
}

/**
 * Opens a collection that `gpubufd.dask.publish()` published. Only its manifest is read. `timeout`: milliseconds to wait for
 * the name. NotFoundError: there is no such name. InvalidError: the object is not a collection.
 */
export function getDataset<T extends Table | NDArray = Table> (
  client: Client, name: string, options?: { timeout?: number, signal?: AbortSignal }): Promise<Dataset<T>>

/**
 * Publishes tables with the same columns as the partitions of a Dask DataFrame, for `gpubufd.dask.load(name)` in Python. Its
 * index counts rows. The name appears when all partitions are published. ExistsError: it is taken.
 */
export function publishDataset (
  client: Client, name: string, tables: Iterable<Publishable> | AsyncIterable<Publishable>,
  options?: { replace?: boolean, mode?: string | number, device?: string, evict?: 'spill' | 'drop' | 'keep', signal?: AbortSignal }): Promise<void>
