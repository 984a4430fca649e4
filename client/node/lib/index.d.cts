/// <reference types="node" />
import { EventEmitter } from 'node:events'
// Without the optional package its types are `any`.
// @ts-ignore
import type * as arrow from 'apache-arrow'

export const version: string

export interface ConnectOptions {
  /**
   * Path of the daemon's socket, also as a URL (unix:///run/…). Default: $GPUBUFD_SOCKET, else $NVIDIA_DRA_LOCAL_IPC_DIR/gpubufd.sock or
   * /run/gpubufd/gpubufd.sock if it exists, else $XDG_RUNTIME_DIR/gpubufd.sock, else
   * /tmp/gpubufd-UID/gpubufd.sock.
   */
  socket?: string
  /** The client's name in `gpubufctl ps`. */
  name?: string
  /** Milliseconds to connect, and to reconnect after the connection broke. Default 5000. */
  timeout?: number
  /** Idle mappings to keep for later opens, in bytes. Default 1 GiB. */
  cacheBytes?: number
  /**
   * How many objects that were opened twice stay open after release(), so that the next open() needs no request; false: none.
   * An open() that begins after the name changed sees the change. Default true, which is 1024.
   */
  cacheLeases?: number | boolean
  /** Reconnect after the connection broke. Default true. */
  reconnect?: boolean
  /** Connect at the first request, or at client.connect(). Then connect() resolves at once. Default false. */
  lazyConnect?: boolean
  /**
   * Called after attempt number `times` (from 1) to connect has failed. Returns the milliseconds until the next attempt, or
   * null to give up. `timeout` then does not limit the attempts.
   */
  retryStrategy?: (times: number, error: GpubufError) => number | null | undefined | void
  /** Open all objects as writable copies instead of shared memory. Default false. */
  copy?: boolean
  signal?: AbortSignal
}

export interface RequestOptions {
  signal?: AbortSignal
}

/** Selects a version of a name. Default: the current one. */
export interface VersionOptions extends RequestOptions {
  version?: number
  /** The newest version with this label. Not together with `version`. */
  label?: string
}

export interface OpenOptions extends RequestOptions {
  /** Milliseconds to wait until the object exists, at most a day. Default 0. */
  timeout?: number
  /** Only this version. */
  version?: number
  /** The newest version with this label. */
  label?: string
  /** Open a writable copy instead of shared memory. Default: as in connect(). */
  copy?: boolean
  /** Open a live object for writing; other writers may be active. UnsupportedError: it is not live. Default false. */
  write?: boolean
}

export interface OpenManyOptions extends RequestOptions {
  timeout?: number
  copy?: boolean
}

export interface CreateOptions extends RequestOptions {
  /** "host", "GPU-…" or "cuda:N". Default: the daemon's. */
  device?: string
  share?: 'fd' | 'ipc'
  /** Rights of others to open (4) and to replace (2): an octal string or a number. Default "0600". */
  mode?: string | number
  /** Take the name from an object that has it. Otherwise ExistsError. Default false. */
  replace?: boolean
  /** Milliseconds after which the object is deleted. */
  ttl?: number
  /** When memory is short: move it to a tier, drop it, or keep it. Default: the daemon's --evict, else 'spill'. */
  evict?: 'spill' | 'drop' | 'keep'
  /** After seal() the kernel protects the memory from every writer, this program included. Host memory only. */
  final?: boolean
  /** A segment of its own, for follow(). Default: bundles of 16 MiB and more have one. */
  own?: boolean
  /** Your label for this version, such as "step-42". */
  label?: string
  /** How many older versions of the name can still be opened, 0 to 8. Others are freed with their last reader. */
  keep?: number
  /** 'cluster': other machines can open the object, through gpubufd-peer. Default 'local'. */
  scope?: 'local' | 'cluster'
  /** Milliseconds to wait for memory, at most a day. Default 0. */
  timeout?: number
}

/** Options of create(). */
export interface MakeOptions extends CreateOptions {
  /** Never sealed: it has its name at once, others read it while it is written, and it stays when its creator exits. */
  live?: boolean
}

/** A CUDA stream's handle (0: the legacy default stream), or an object with the handle as `ptr`. */
export type StreamLike = bigint | number | { readonly ptr: bigint | number }

export interface SealOptions extends RequestOptions {
  /** The CUDA stream whose queued work still writes the object: readers' streams wait for it, seal() does not. */
  stream?: StreamLike
  /** How many elements are null; for a table a count for each column. */
  nullCounts?: number | number[] | Record<string, number>
  /** A label for this version; overrides create()'s. */
  label?: string
  /** How many older versions can still be opened; overrides create()'s. */
  keep?: number
}

export interface PutOptions extends CreateOptions {
  /** The kind to publish, where a value can be several. */
  as?: 'bytes' | 'array' | 'column' | 'table'
  /** The shape of an array, in elements. Default: one axis. */
  shape?: number[]
  /** The dtype of the bytes, such as 'float8_e4m3fn'. Default: that of the typed array. */
  dtype?: string
  /** The CUDA stream to copy on, if the object is on a GPU. */
  stream?: StreamLike
  /** With `stream`, false: resolve when the copies are queued. Default true. */
  wait?: boolean
}

export interface ColumnLayout {
  name?: string
  dtype: string
  length?: number
  mask?: boolean
  /** How many elements are null. Default: unknown if there is a mask. */
  nullCount?: number
  /** For text and binary: the size of all elements, in bytes. */
  dataBytes?: number
  metadata?: Map<string, string> | Record<string, string>
  children?: ColumnLayout[]
}

export type Layout =
  | { kind: 'bytes', bytes: number, metadata?: Map<string, string> | Record<string, string> }
  | { kind: 'array', dtype: string, shape: number[], mask?: boolean, metadata?: Map<string, string> | Record<string, string> }
  | { kind: 'bundle', bytes: number, manifestBytes: number }
  | ({ kind: 'column', length: number } & ColumnLayout)
  | { kind: 'table', length: number, columns: ColumnLayout[], metadata?: Map<string, string> | Record<string, string> }

/** The daemon's description of an object. Sizes are in bytes. */
export interface ObjectInfo {
  name: string
  version: number
  state: 'open' | 'sealed'
  tier: 'device' | 'host' | 'disk'
  device: string
  bytes: number
  mode: string
  uid: number
  gid: number
  created_ms: number
  leases: number
  pinned: boolean
  /** Its producer's label for this version. */
  label?: string
  /** How many older versions the name keeps while this one is current. */
  keep?: number
  /** Not the current version; can be opened by version or label. */
  older?: true
  /** Cannot be opened any more; exists for sessions that have it open. */
  gone?: true
  /** The kernel protects its memory from every writer. */
  final?: true
  /** Milliseconds until it is deleted; 0: never. */
  ttl_ms: number
  /** Absent: the object is for this machine only. */
  scope?: 'cluster'
  evict: 'spill' | 'drop' | 'keep'
  /** The daemon's choice when memory is short and nobody has it open. */
  when_short: 'spills' | 'stays' | 'drops'
  /** Milliseconds since it was last opened or released; 0 while it is open. Only in stat() and list(). */
  idle_ms?: number
  /** Only in stat(). */
  layout?: Record<string, unknown>
  [member: string]: unknown
}

export interface LeaseInfo {
  lease: number
  session: number
  pid: number
  uid: number
  client: string
  name: string
  version: number
  bytes: number
  access: string
  age_ms: number
  /** True: a claim. */
  exclusive?: boolean
  /** Of a stream: the writer's or the reader's state. */
  stream?: { frames: number } | { reader: number, hold: number, lag: number, held: number, frames: number, missed: number, behind?: number }
  /** How long the lease has been cached and unused, in milliseconds. */
  cached_ms?: number
  /** How long it has been parked, in milliseconds. */
  parked_ms?: number
}

export interface WatchOptions extends RequestOptions {
  /** How many events may wait for next(); beyond that the oldest are dropped. Default 10 000. */
  limit?: number
}

export interface WatchEvent {
  kind: 'sealed' | 'deleted' | 'evicted' | 'spilled' | 'restored' | 'withdrawn' | 'parked' | 'resumed' | 'synced' | 'reconnected' | 'refused' |
    (string & {})
  object?: ObjectInfo
  /** How many events were dropped before this one. */
  lost?: number
}

export interface DeviceMemory {
  ptr: bigint
  byteLength: number
  /** CUDA's ordinal in this process. */
  device: number
  uuid: string
}

export interface IpcHandle {
  device: number
  uuid: string
  /** For cuIpcOpenMemHandle: 64 bytes. */
  handle: Uint8Array
  byteOffset: number
  byteLength: number
}

export interface DeviceDescriptor {
  dtype: string
  data?: DeviceMemory
  nullMask?: DeviceMemory
  offsets?: DeviceMemory
  offset: number
  length: number
  nullCount: number
  children: DeviceDescriptor[]
}

export type Values =
  | Int8Array | Int16Array | Int32Array | BigInt64Array
  | Uint8Array | Uint16Array | Uint32Array | BigUint64Array
  | Float32Array | Float64Array

/** Elements of one type, and nulls: strings, numbers (float64), bigints (int64), booleans or dates (timestamp[ms]). */
export type PlainColumn =
  | readonly (string | null | undefined)[] | readonly (number | null | undefined)[] | readonly (bigint | null | undefined)[]
  | readonly (boolean | null | undefined)[] | readonly (Date | null | undefined)[]

export type Publishable =
  | Values | Uint8ClampedArray | ArrayBuffer | SharedArrayBuffer | DataView
  | arrow.Vector | arrow.Table | arrow.RecordBatch
  | AsyncIterable<arrow.RecordBatch> | AsyncIterable<Uint8Array>
  | NodeJS.ReadableStream
  | PlainColumn
  | { readonly [column: string]: Values | arrow.Vector | PlainColumn }
  /** Rows: the columns are those of all rows, and a missing member is null. */
  | readonly { readonly [column: string]: string | number | bigint | boolean | Date | null | undefined }[]

/**
 * An element, by its dtype: numbers (bigints of 64 bits), strings, booleans, Date (dates, and timestamps in s and ms; a
 * bigint in us and ns), a string of digits for decimals, Uint8Array for binary, arrays, objects and Maps for lists,
 * structs and maps; null where it is not valid.
 */
export type Element =
  | null | number | bigint | boolean | string | Date | Uint8Array | Element[] | Map<Element, Element>
  | { [field: string]: Element }

export type AnyObject = Bytes | NDArray | Column | Table | Bundle

/** Names one version of an object, for a worker or another process; holds no lease. */
export interface Shared<T extends SharedObject = SharedObject> {
  readonly name: string
  readonly version: number
  /** The run of the daemon that has it. */
  readonly instance: string
  /** Never set: tells the compiler which kind of object open() returns. */
  readonly object?: T
}

export abstract class SharedObject {
  protected constructor ()
  readonly kind: 'bytes' | 'array' | 'column' | 'table' | 'bundle'
  /** Its producer's metadata; of a table that of the Arrow schema. */
  readonly metadata: Map<string, string>
  readonly name: string
  readonly version: number
  /** Its producer's label for this version. */
  readonly label: string | undefined
  readonly device: string
  readonly length: number
  readonly released: boolean
  /** Whether it is a live object, whose content changes while others read it. */
  readonly live: boolean
  /** Counts the claims of a live object; 0: this is not a claim. */
  readonly generation: number
  /** Whether the lease was lost with its connection. Another program may then have the claim. */
  readonly stale: boolean
  slice (begin?: number, end?: number): this
  /**
   * Returns a reference to the whole object for a worker, which passes it to `client.open()`. Release this object only after
   * that.
   */
  share (): Shared<this>
  /** Releases the object; with a CUDA `stream`, once the work queued there is done. */
  release (options?: { stream?: StreamLike }): void
  /** Publishes an object of create(); resolves with the version. */
  seal (options?: SealOptions): Promise<number>
  /** Copies into an unsealed object; `at`: the offset in the buffer, in bytes. */
  write (view: ArrayBufferView, options?: { buffer?: 'data' | 'mask' | 'offsets', at?: number, signal?: AbortSignal }): Promise<void>
  /** The CUDA IPC handle of an object on a GPU that was created with share: "ipc". */
  ipcHandle (options?: RequestOptions): Promise<IpcHandle>
  /** Resolves when the producer's work on a GPU is done; with `stream`, that CUDA stream waits instead. */
  ready (options?: RequestOptions & { stream?: StreamLike }): Promise<void>
  /** For JSON.stringify(): a description, not the content. */
  toJSON (): { kind: string, name: string, version: number, dtype?: string, length: number, device: string }
  [Symbol.dispose] (): void
  [Symbol.asyncDispose] (): Promise<void>
}

/** Elements of a host object. On a GPU these throw an UnsupportedError: use toHost(). */
interface Elements<T> extends Iterable<T> {
  /** Returns element i, or undefined; a negative i counts from the end. */
  get (i: number): T | undefined
  /** Returns a copy of all elements. */
  toArray (): T[]
  [Symbol.iterator] (): IterableIterator<T>
}

export class Bytes extends SharedObject {
  private constructor ()
  readonly kind: 'bytes'
  readonly bytes: Uint8Array
  readonly deviceData?: DeviceMemory
  toArrow (): arrow.Vector<arrow.Uint8>
  toHost (options?: RequestOptions): Promise<arrow.Vector<arrow.Uint8>>
}

/** The place of an array in a bundle's bytes. */
export interface TensorInfo {
  dtype: string
  shape: number[]
  offset: number
  byteLength: number
}

/** Many arrays in one object, in the form of a safetensors file. A bundle cannot be sliced. */
export class Bundle extends SharedObject implements Iterable<[name: string, array: NDArray]> {
  private constructor ()
  readonly kind: 'bundle'
  readonly bytes: Uint8Array
  readonly deviceData?: DeviceMemory
  /** The number of arrays. */
  readonly size: number
  readonly names: string[]
  /** In the manifest's order. */
  readonly tensors: Map<string, TensorInfo>
  has (name: string): boolean
  /** Returns an array over the same memory, valid until the bundle is released. */
  get (name: string): NDArray
  [Symbol.iterator] (): IterableIterator<[name: string, array: NDArray]>
}

export class NDArray extends SharedObject implements Elements<Element> {
  private constructor ()
  /** Elements are counted in C order. */
  get (i: number): Element | undefined
  toArray (): Element[]
  [Symbol.iterator] (): IterableIterator<Element>
  readonly kind: 'array'
  readonly dtype: string
  /** In elements. `values` of packed dtypes ("float4_e2m1fn") has their bytes. */
  readonly shape: number[]
  readonly strides: number[]
  readonly ndim: number
  readonly size: number
  readonly nullCount: number
  readonly isContiguous: boolean
  /** The elements; the bits of floats that JavaScript lacks ("float16", "bfloat16", "float8_e4m3fn"). */
  readonly values: Values
  readonly mask?: Uint8Array
  readonly maskOffset: number
  readonly deviceData?: DeviceMemory
  readonly deviceMask?: DeviceMemory
  toArrow (): arrow.Vector
  toHost (options?: RequestOptions): Promise<arrow.Vector>
}

export class Column extends SharedObject implements Elements<Element> {
  private constructor ()
  get (i: number): Element | undefined
  toArray (): Element[]
  [Symbol.iterator] (): IterableIterator<Element>
  readonly kind: 'column'
  readonly columnName?: string
  readonly dtype: string
  readonly offset: number
  readonly nullCount: number
  readonly childCount: number
  readonly children: Column[]
  child (i: number): Column
  readonly values?: Values
  readonly mask?: Uint8Array
  /** The bit of the first element in the first byte of `mask`, and in `values` of bools. */
  readonly bitOffset: number
  readonly offsets?: Int32Array | BigInt64Array
  isValid (i: number): boolean
  readonly deviceData?: DeviceMemory
  readonly deviceMask?: DeviceMemory
  readonly deviceOffsets?: DeviceMemory
  deviceDescriptor (): DeviceDescriptor
  toArrow (): arrow.Vector
  toHost (options?: RequestOptions): Promise<arrow.Vector>
}

export class Table extends SharedObject implements Elements<{ [column: string]: Element }> {
  private constructor ()
  /** Returns row i as an object, or undefined. */
  get (i: number): { [column: string]: Element } | undefined
  toArray (): { [column: string]: Element }[]
  [Symbol.iterator] (): IterableIterator<{ [column: string]: Element }>
  readonly schema: { name: string, dtype: string, metadata: Map<string, string> }[]
  readonly kind: 'table'
  readonly numRows: number
  readonly numColumns: number
  readonly columnNames: string[]
  readonly columns: Column[]
  column (name: string): Column
  columnAt (i: number): Column
  /** Iterates over Arrow record batches of at most `rows` rows (default 65 536), for a stream. */
  batches (rows?: number, options?: RequestOptions): AsyncGenerator<arrow.RecordBatch, void, undefined>
  toArrow (): arrow.Table
  toHost (options?: RequestOptions): Promise<arrow.Table>
}

export interface WorkOptions extends RequestOptions {
  /** CUDA streams that use the view; the call waits for them. Default: it waits for all of the context's work. */
  streams?: readonly StreamLike[]
}

/** Successive versions of a name at the same addresses; made by Client.follow(). Calls take effect one after the other. */
export class View<T extends SharedObject = AnyObject> {
  private constructor ()
  /** The object that is shown. Its typed arrays keep their ArrayBuffer, and show the view's version. */
  readonly value: T
  readonly name: string
  /** The version that is shown, or parked. */
  readonly version: number
  readonly label: string | undefined
  readonly parked: boolean
  readonly closed: boolean
  /**
   * Shows the newest version, or `version`, or the newest with `label`; resolves with false if it was shown already.
   * `timeout`: milliseconds to wait until it exists. UnsupportedError: it has another layout, or shares its segment. After an
   * error the view is unchanged.
   */
  switch (options?: VersionOptions & WorkOptions & { timeout?: number }): Promise<boolean>
  /**
   * Releases the memory, and keeps content and addresses; resolves with false if it was parked already. Until resume() typed
   * arrays on the host read zeros; reading on a GPU ends the CUDA context.
   */
  park (options?: WorkOptions): Promise<boolean>
  /** Shows a parked view again; resolves with false if it was not. `timeout`: milliseconds to wait for room. NoSpaceError. */
  resume (options?: RequestOptions & { timeout?: number }): Promise<boolean>
  /** Iterates over versions newer than the one that is shown. */
  versions (options?: WatchOptions): AsyncGenerator<ObjectInfo, void, void>
  /** Ends the view. Its typed arrays then read zeros. */
  close (): void
  [Symbol.dispose] (): void
  [Symbol.asyncDispose] (): Promise<void>
}

/** One frame of a stream, in its slot. */
export interface Frame<V extends Values = Values> {
  /** Grows by one from frame to frame of a writer. */
  readonly number: bigint
  /** When it was published, in nanoseconds of process.hrtime.bigint()'s clock; 0 before. */
  readonly timeNs: bigint
  /** How many frames were not read before this one. */
  readonly missed: number
  /** How many bytes were published, from the slot's beginning. */
  readonly byteLength: number
  /** All elements of the slot, in C order. Do not use it after done() or publish(). */
  readonly array: V
  /** The slot, on a GPU. */
  readonly deviceData?: DeviceMemory
}

export interface WritableFrame<V extends Values = Values> extends Frame<V> {
  /** Shows the frame to readers; on a GPU when the work queued on `stream` is done. */
  publish (options?: { byteLength?: number, stream?: StreamLike }): Promise<void>
}

export interface ReadableFrame<V extends Values = Values> extends Frame<V> {
  /**
   * Makes work queued on `stream` from now on wait until the frame is complete. Only frames that were read `ahead` need it.
   */
  wait (options?: { stream?: StreamLike }): Promise<void>
  /** Gives the frame back; on a GPU when the work queued on `stream` is done. Calling it twice is allowed. */
  done (options?: { stream?: StreamLike }): Promise<void>
  [Symbol.dispose] (): void
  [Symbol.asyncDispose] (): Promise<void>
}

interface Stream {
  readonly name: string
  /** This and the next three are undefined until a reader has joined. */
  readonly dtype: string | undefined
  /** The shape of a frame. */
  readonly shape: number[] | undefined
  readonly slots: number | undefined
  readonly device: string | undefined
  readonly closed: boolean
  /** Leaves the stream. Typed arrays of a writer's frames become empty. */
  close (): Promise<void>
  [Symbol.dispose] (): void
  [Symbol.asyncDispose] (): Promise<void>
}

export interface StreamOptions extends RequestOptions {
  /** The dtype of a frame. */
  dtype: string
  /** The shape of a frame. Default: one element. */
  shape?: number[]
  /** How many frames the memory holds, 2 to 128; readers keep some of them. Default 8. */
  slots?: number
  device?: string
  /** Rights of others to read (4) and to write (2): an octal string or a number. Default "0600". */
  mode?: string | number
  /** Milliseconds to wait for memory, and for a former writer to end. Default 0. */
  timeout?: number
}

export interface ReadOptions extends RequestOptions {
  /** Read every frame, in order, instead of the newest. */
  each?: boolean
  /** With `each`: ask the writer to wait before this reader misses a frame. */
  waits?: boolean
  /** How many of the newest frames are kept for this reader. Default 0; with `each` 2. */
  lag?: number
  /** How many frames this reader may hold at once. Default 1. */
  hold?: number
  /**
   * On a GPU: take frames before the writer's work on them is done; frame.wait() makes your work wait. CanceledError of a
   * later read(): the writer ended before a frame was complete.
   */
  ahead?: boolean
  /** Milliseconds to wait until the stream exists. Default 0. */
  timeout?: number
}

export class StreamWriter<V extends Values = Values> implements Stream {
  private constructor ()
  readonly name: string
  readonly dtype: string
  readonly shape: number[]
  readonly slots: number
  readonly device: string
  readonly closed: boolean
  /**
   * Returns the next slot to write; until publish() the same one. `timeout`: milliseconds to wait for readers with `waits`
   * (Infinity: no limit), after which they miss frames. Default 0.
   */
  next (options?: RequestOptions & { timeout?: number }): Promise<WritableFrame<V>>
  close (): Promise<void>
  [Symbol.dispose] (): void
  [Symbol.asyncDispose] (): Promise<void>
}

/** Each iteration gives the previous frame back. The loop ends, and closes the reader, when the writer has ended. */
export class StreamReader<V extends Values = Values> implements Stream, AsyncIterableIterator<ReadableFrame<V>> {
  private constructor ()
  readonly name: string
  readonly dtype: string | undefined
  readonly shape: number[] | undefined
  readonly slots: number | undefined
  readonly device: string | undefined
  readonly closed: boolean
  /** Resolves when the reader has joined the stream. */
  ready (): Promise<this>
  /**
   * Returns the next frame; call its done(). `timeout`: milliseconds to wait for it. TimeoutError: none came.
   * UnavailableError: the writer has ended. BusyError: this reader holds `hold` frames already.
   */
  read (options?: RequestOptions & { timeout?: number }): Promise<ReadableFrame<V>>
  next (): Promise<IteratorResult<ReadableFrame<V>, undefined>>
  return (): Promise<IteratorResult<ReadableFrame<V>, undefined>>
  [Symbol.asyncIterator] (): this
  close (): Promise<void>
  [Symbol.dispose] (): void
  [Symbol.asyncDispose] (): Promise<void>
}

export interface EditOptions extends RequestOptions {
  /** The version to change. Default: the current one. */
  version?: number
  /** Milliseconds to wait for the object, then for room. */
  timeout?: number
  label?: string
  keep?: number
  nullCounts?: number | number[] | Record<string, number>
}

export interface WantedBy {
  /** The user of the client that asked first. */
  uid: number
  gid: number
  /** Aborted when no client waits for the name any more. */
  signal: AbortSignal
}

/** Returns a value to publish; undefined: it has published the name itself. */
export type Load = (name: string, by: WantedBy) => Publishable | undefined | Promise<Publishable | undefined>

/** `signal` ends provide()'s request, not the provider. */
export interface ProvideOptions extends PutOptions {
  /** How many names are loaded at once. Default 16. */
  concurrency?: number
  /** Milliseconds after which a load is abandoned: waiting calls get an UnavailableError. Default 300 000. */
  loadTimeout?: number
}

/** Makes absent names when clients wait for them, until close(). */
export interface Provider {
  readonly prefix: string
  readonly closed: boolean
  /** Aborts the signals of loads in progress, and resolves when they have ended. */
  close (): Promise<void>
  [Symbol.asyncDispose] (): Promise<void>
}

export interface Watch extends AsyncIterableIterator<WatchEvent> {
  return (): Promise<IteratorResult<WatchEvent>>
  [Symbol.asyncDispose] (): Promise<void>
}

export interface ClientEvents {
  /** The client has connected for the first time. Only with lazyConnect is it emitted after connect() has resolved. */
  connect: []
  /** The client has reconnected: watches report every existing object again. */
  reconnect: []
  /** The connection broke, and no daemon answered within the timeout. The next call reconnects, unless `reconnect` is false. */
  disconnect: [error: GpubufError]
  /** close() was called. */
  close: []
}

export class Client extends EventEmitter {
  private constructor ()
  on<K extends keyof ClientEvents> (event: K, listener: (...values: ClientEvents[K]) => void): this
  once<K extends keyof ClientEvents> (event: K, listener: (...values: ClientEvents[K]) => void): this
  off<K extends keyof ClientEvents> (event: K, listener: (...values: ClientEvents[K]) => void): this
  readonly connected: boolean
  readonly closed: boolean
  /** The identity of this run of the daemon; "" until the client has connected. */
  readonly instance: string
  /** Connects now, if the client has not connected yet (lazyConnect) or the connection broke. */
  connect (options?: RequestOptions): Promise<void>
  close (): void
  [Symbol.dispose] (): void
  [Symbol.asyncDispose] (): Promise<void>

  /** Opens an object without a copy. NotFoundError; with a timeout TimeoutError. */
  open<T extends AnyObject = AnyObject> (what: string | Shared<T>, options?: OpenOptions): Promise<T>
  /** Opens several objects in one round trip, all or none; with `partial` an error takes the place of each that failed. */
  openMany<T extends AnyObject = AnyObject> (names: readonly string[], options?: OpenManyOptions & { partial?: false }): Promise<T[]>
  openMany<T extends AnyObject = AnyObject> (names: readonly string[], options: OpenManyOptions & { partial: true }): Promise<(T | GpubufError)[]>

  /** Opens a live object as its only writer; `timeout`: milliseconds to wait for other writers to end. */
  claim<T extends AnyObject = AnyObject> (name: string, options?: RequestOptions & { timeout?: number }): Promise<T>
  /** Opens a name as a View, which shows successive versions at the same addresses. Each must be published with `own`. */
  follow<T extends AnyObject = AnyObject> (name: string, options?: VersionOptions & { timeout?: number }): Promise<View<T>>
  /** Publishes a copy that `write` has changed as the next version; resolves with its number. Nothing, if `write` throws. */
  edit<T extends AnyObject = AnyObject> (name: string, write: (object: T) => unknown, options?: EditOptions): Promise<number>
  /** Creates a stream, or takes it over, and becomes its writer. BusyError: it has a writer. */
  stream<V extends Values = Values> (name: string, options: StreamOptions): Promise<StreamWriter<V>>
  /** Joins a stream as a reader. Errors are thrown with the first frame. */
  read<V extends Values = Values> (name: string, options?: ReadOptions): StreamReader<V>

  /** Allocates an object to fill in place; its seal() publishes it, release() discards it. The memory is not zeroed. */
  create (name: string, layout: { kind: 'bytes', bytes: number }, options?: MakeOptions): Promise<Bytes>
  create (name: string, layout: Extract<Layout, { kind: 'bundle' }>, options?: MakeOptions): Promise<Bundle>
  create (name: string, layout: Extract<Layout, { kind: 'array' }>, options?: MakeOptions): Promise<NDArray>
  create (name: string, layout: Extract<Layout, { kind: 'column' }>, options?: MakeOptions): Promise<Column>
  create (name: string, layout: Extract<Layout, { kind: 'table' }>, options?: MakeOptions): Promise<Table>
  /** Publishes a copy of a value; resolves with the version. ExistsError: the name is taken, without `replace`. */
  put (name: string, value: Publishable, options?: PutOptions): Promise<number>
  /** Publishes values by name; resolves with their versions. */
  putMany (values: ReadonlyMap<string, Publishable> | { readonly [name: string]: Publishable }, options?: PutOptions & { partial?: false }): Promise<number[]>
  putMany (values: ReadonlyMap<string, Publishable> | { readonly [name: string]: Publishable }, options: PutOptions & { partial: true }): Promise<(number | Error)[]>

  /** Describes an object, with its layout, without opening it. */
  stat (name: string, options?: VersionOptions): Promise<ObjectInfo>
  /** Resolves with whether an object has that name, and the program may open it. */
  has (name: string, options?: VersionOptions): Promise<boolean>
  /** Resolves when the daemon has answered. */
  ping (options?: RequestOptions): Promise<void>
  /**
   * Lists objects whose names begin with a text, or match a pattern with `*` (any text) or `?` (one character). With
   * `versions` each name's older versions follow its current one.
   */
  list (names?: string, options?: RequestOptions & { versions?: boolean }): Promise<ObjectInfo[]>
  /** Iterates over a name's versions: the current one, then each that is published. */
  versions (name: string, options?: WatchOptions): AsyncGenerator<ObjectInfo, void, void>
  /** Deletes a name with all its versions; with `version` or `label` of an older version, only that version. */
  delete (name: string, options?: VersionOptions): Promise<void>
  /**
   * Deletes an array of names, which are not patterns, or all names that match a pattern, as in list(). An object whose name
   * is the pattern itself is deleted alone.
   */
  delete (names: string | readonly string[], options?: RequestOptions): Promise<void>
  /** Keeps an object from being evicted, until unpin(). */
  pin (name: string, options?: RequestOptions): Promise<void>
  unpin (name: string, options?: RequestOptions): Promise<void>
  /** Has an object deleted `ttl` milliseconds from now; 0: never. Replaces an earlier setting. */
  expire (name: string, ttl: number, options?: VersionOptions): Promise<void>
  /** Moves an object off its device now. Default: to the first tier that the daemon has. */
  spill (name: string, options?: VersionOptions & { tier?: 'host' | 'disk' }): Promise<void>
  /** Brings an object back to its device before it is opened; `timeout`: milliseconds to wait for room there. */
  restore (name: string, options?: VersionOptions & { timeout?: number }): Promise<void>
  /** Gives an object, or a part of it, a second name; both share the memory. Resolves with the version. */
  alias (name: string, of: string, options?: RequestOptions & {
    slice?: { offset: number, length: number }, columns?: string[], mode?: string | number,
    replace?: boolean, label?: string, keep?: number
  }): Promise<number>
  leases (name?: string, options?: RequestOptions): Promise<{ leases: LeaseInfo[], mapped: { session: number, pid: number, uid: number, client: string, segment: number, bytes: number, retiring?: boolean }[], truncated?: boolean }>
  stats (options?: RequestOptions): Promise<Record<string, unknown>>
  /** Sends any request of the protocol that carries no descriptors. */
  call (method: string, params?: Record<string, unknown>, options?: RequestOptions): Promise<Record<string, unknown>>
  /** Iterates over events of names that begin with `prefix`: existing objects, then `synced`, then changes. */
  watch (prefix?: string, options?: WatchOptions): Watch
  /** Makes absent names that begin with `prefix` when clients wait for them, once, however many wait. */
  provide (prefix: string, load: Load, options?: ProvideOptions): Promise<Provider>
}

/** The message of `gpubufd:request:start` and `:end` of node:diagnostics_channel: one object for both channels. */
export interface RequestMessage {
  client: Client
  /** A method of the protocol, or "openMany", "read", "write" or "ready". */
  method: string
  name?: string | string[]
  /** At the end, the error that the request was rejected with. */
  error?: unknown
}

/** Connects; a string is the socket's path. */
export function connect (options?: string | ConnectOptions): Promise<Client>

/** Sets the apache-arrow module that toArrow() uses. Default: the one that `import` or `require` finds. */
export function setArrow (module: unknown): void

export class GpubufError extends Error {
  constructor (message: string, kind?: string, errno?: number)
  /** The short name, as in the protocol: "not_found". */
  readonly kind: string
  /** "GPUBUF_E_NOT_FOUND". */
  readonly code: string
  /** The number of the protocol or the library. */
  readonly errno: number
}

export class ParseError extends GpubufError {}
export class RequestError extends GpubufError {}
export class MethodError extends GpubufError {}
export class InvalidError extends GpubufError {}
export class InternalError extends GpubufError {}
export class NotFoundError extends GpubufError {}
export class ExistsError extends GpubufError {}
export class NoSpaceError extends GpubufError {}
export class DeniedError extends GpubufError {}
export class BusyError extends GpubufError {}
export class TimeoutError extends GpubufError {}
export class StaleError extends GpubufError {}
export class LimitError extends GpubufError {}
export class DeviceError extends GpubufError {}
export class UnsupportedError extends GpubufError {}
/** A provider cannot make the object now. */
export class UnavailableError extends GpubufError {}
export class NoMemoryError extends GpubufError {}
export class ConnectError extends GpubufError {}
export class ClosedError extends GpubufError {}
export class ProtocolError extends GpubufError {}
export class AgainError extends GpubufError {}
export class ForkedError extends GpubufError {}
export class SystemError extends GpubufError {}
export class CanceledError extends GpubufError {}
