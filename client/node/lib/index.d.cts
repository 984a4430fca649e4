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
  /** Milliseconds to connect, and to reconnect after a connection was lost. Default 5000. */
  timeout?: number
  /** Idle mappings to keep for later opens, in bytes. Default 1 GiB. */
  cacheBytes?: number
  /**
   * How many leases stay cached after release(), so that the next open() of the name needs no request; false: none.
   * An open() that begins after a change of the name sees the change. Default true, which is 1024.
   */
  cacheLeases?: number | boolean
  /** Reconnect after the connection broke. Default true. */
  reconnect?: boolean
  /** Connect when the first request is made, or `connect()` is called: connect() resolves at once. Default false. */
  lazyConnect?: boolean
  /**
   * Called after attempt number `times` to connect has failed, from 1 on, the first connection's too. Returns the
   * milliseconds until the next attempt, or null to give up. With it `timeout` does not bound the attempts.
   */
  retryStrategy?: (times: number, error: GpubufError) => number | null | undefined | void
  /** Show copies instead of shared memory, in all objects. Default false. */
  copy?: boolean
  signal?: AbortSignal
}

export interface RequestOptions {
  signal?: AbortSignal
}

/** Which version of a name is meant. Default: the current one. */
export interface VersionOptions extends RequestOptions {
  version?: number
  /** The newest version with this label; not together with `version`. */
  label?: string
}

export interface OpenOptions extends RequestOptions {
  /** Milliseconds to wait until the object exists, a day at most. Default 0. */
  timeout?: number
  /** Only this version. */
  version?: number
  /** The newest version with this label. */
  label?: string
  copy?: boolean
  /** A live object, for writing; other writers may be active. UnsupportedError: it is not live. Default false. */
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
  replace?: boolean
  /** Milliseconds after which it is deleted. */
  ttl?: number
  /** How it is evicted when memory is short. Default: the daemon's, 'spill' unless it is a cache. */
  evict?: 'spill' | 'drop' | 'keep'
  /** Once the object is sealed, the kernel keeps everybody from changing it, this program too. Host memory only. */
  final?: boolean
  /** A segment of its own, for follow(). Default: bundles of 16 MiB and more have one. */
  own?: boolean
  /** A label of yours for this version, such as "step-42". */
  label?: string
  /** How many older versions of the name can still be opened, 0 to 8. Others go with their last reader. */
  keep?: number
  /** 'cluster': other machines can open the object, by way of gpubufd-peer. Default 'local'. */
  scope?: 'local' | 'cluster'
  /** Milliseconds to wait for memory, a day at most. */
  timeout?: number
}

/** Options of create() alone. */
export interface MakeOptions extends CreateOptions {
  /** It is never sealed: it has its name at once, others read it while it is written, and it stays when its creator ends. */
  live?: boolean
}

/** A CUDA stream's handle (0: the legacy default stream), or an object with the handle as `ptr`. */
export type StreamLike = bigint | number | { readonly ptr: bigint | number }

export interface SealOptions extends RequestOptions {
  /** The stream with queued work that still writes the object: readers wait for it on the GPU, seal() does not. */
  stream?: StreamLike
  /** How many elements are null; for a table a count for each column. */
  nullCounts?: number | number[] | Record<string, number>
  /** A label for this version, in place of the one that create() was given. */
  label?: string
  /** How many older versions can still be opened, in place of the number that create() was given. */
  keep?: number
}

export interface PutOptions extends CreateOptions {
  as?: 'bytes' | 'array' | 'column' | 'table'
  shape?: number[]
  dtype?: string
  /** The stream to copy on, if the object is on a GPU. */
  stream?: StreamLike
  /** With `stream`; false: resolve when the copies are queued. Default true. */
  wait?: boolean
}

export interface ColumnLayout {
  name?: string
  dtype: string
  length?: number
  mask?: boolean
  /** How many elements are null. Default: unknown if there is a mask. */
  nullCount?: number
  /** For strings: the number of bytes of all characters. */
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

/** The daemon's description of an object; `layout` in stat() only. */
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
  /** Not current, and can be opened by version or label. */
  older?: true
  /** Can be opened no more, and exists for sessions that have it open. */
  gone?: true
  /** The kernel lets nobody write its memory any more. */
  final?: true
  ttl_ms: number
  /** Absent: the object is for this machine only. */
  scope?: 'cluster'
  evict: 'spill' | 'drop' | 'keep'
  /** How it is evicted when memory is short and no lease holds it. */
  when_short: 'spills' | 'stays' | 'drops'
  /** Time since it was last opened or released; 0 while a session holds it. In answers to stat and list. */
  idle_ms?: number
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
  /** A claim. */
  exclusive?: boolean
  /** The part that it takes in a stream. */
  stream?: { frames: number } | { reader: number, hold: number, lag: number, held: number, frames: number, missed: number, behind?: number }
  /** For how long the lease has been cached, and unused as far as its session has said. */
  cached_ms?: number
  /** For how long it has been parked. */
  parked_ms?: number
}

export interface WatchOptions extends RequestOptions {
  /** How many events may wait for next(); if there are more, the oldest are left out. Default 10 000. */
  limit?: number
}

export interface WatchEvent {
  kind: 'sealed' | 'deleted' | 'evicted' | 'spilled' | 'restored' | 'withdrawn' | 'parked' | 'resumed' | 'synced' | 'reconnected' | 'refused' |
    (string & {})
  object?: ObjectInfo
  /** How many events were left out before this one. */
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
  /** For cuIpcOpenMemHandle: 64 octets. */
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
  /** Which run of the daemon has it. */
  readonly instance: string
  /** Never set: by it the compiler knows which kind of object open() returns. */
  readonly object?: T
}

export abstract class SharedObject {
  protected constructor ()
  readonly kind: 'bytes' | 'array' | 'column' | 'table' | 'bundle'
  /** Its maker's words about it; of a table the metadata of the Arrow schema. */
  readonly metadata: Map<string, string>
  readonly name: string
  readonly version: number
  /** Its producer's label for this version. */
  readonly label: string | undefined
  readonly device: string
  readonly length: number
  readonly released: boolean
  /** Whether its content changes while others read it; such an object is never sealed. */
  readonly live: boolean
  /** Of the claim that this object is: one higher each time. 0: it is none. */
  readonly generation: number
  /** Whether the lease was lost with its connection: a claim may then be another program's. */
  readonly stale: boolean
  slice (begin?: number, end?: number): this
  /**
   * A reference that a worker gives to its `client.open()`. From a view it is a reference to the whole object. Release
   * this object only after the worker has opened it.
   */
  share (): Shared<this>
  /** Gives the object back; with `stream`, when the work queued on that stream is done. */
  release (options?: { stream?: StreamLike }): void
  /** Publishes an object that create() made; resolves with the version. */
  seal (options?: SealOptions): Promise<number>
  /** Copies into an unsealed object; `at`: the offset in the buffer, in bytes. */
  write (view: ArrayBufferView, options?: { buffer?: 'data' | 'mask' | 'offsets', at?: number, signal?: AbortSignal }): Promise<void>
  /** The CUDA IPC handle of an object on a GPU that was created with share: "ipc". */
  ipcHandle (options?: RequestOptions): Promise<IpcHandle>
  /** Resolves when the content is there. That is at once, unless its producer still has work queued on a GPU. */
  ready (options?: RequestOptions & { stream?: StreamLike }): Promise<void>
  /** For JSON.stringify(): a description, not the content. */
  toJSON (): { kind: string, name: string, version: number, dtype?: string, length: number, device: string }
  [Symbol.dispose] (): void
  [Symbol.asyncDispose] (): Promise<void>
}

/** Elements of a host object; on a GPU each is an UnsupportedError that names toHost(). */
interface Elements<T> extends Iterable<T> {
  /** Element i; a negative i counts from the end. undefined: there is none. */
  get (i: number): T | undefined
  /** All elements: a copy. */
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

/** Where an array of a bundle lies in its bytes. */
export interface TensorInfo {
  dtype: string
  shape: number[]
  offset: number
  byteLength: number
}

/** Many arrays in one object. `bytes` are those of a safetensors file. A bundle cannot be sliced. */
export class Bundle extends SharedObject implements Iterable<[name: string, array: NDArray]> {
  private constructor ()
  readonly kind: 'bundle'
  readonly bytes: Uint8Array
  readonly deviceData?: DeviceMemory
  /** How many arrays there are. */
  readonly size: number
  readonly names: string[]
  /** In the manifest's order. */
  readonly tensors: Map<string, TensorInfo>
  has (name: string): boolean
  /** An array over the same memory: a view, which ends with the bundle. */
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
  /** In elements, for packed dtypes ("float4_e2m1fn"), too; `values` then has the bytes that the elements fill. */
  readonly shape: number[]
  readonly strides: number[]
  readonly ndim: number
  readonly size: number
  readonly nullCount: number
  readonly isContiguous: boolean
  /** The elements. For floats without a JavaScript array ("float16", "bfloat16", "float8_e4m3fn"): their bits. */
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
  /** Bit of the first element in the first byte of `mask`, and of `values` of bools. */
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
  /** Row i. */
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
  /** Arrow record batches of at most `rows` rows (default 65 536), for a stream. */
  batches (rows?: number, options?: RequestOptions): AsyncGenerator<arrow.RecordBatch, void, undefined>
  toArrow (): arrow.Table
  toHost (options?: RequestOptions): Promise<arrow.Table>
}

export interface WorkOptions extends RequestOptions {
  /** CUDA streams that work with the view, and are waited for. Default: all of the context's work. */
  streams?: readonly StreamLike[]
}

/** One version of a name after another, at addresses that stay. Calls take effect one after the other. */
export class View<T extends SharedObject = AnyObject> {
  private constructor ()
  /** The object that is shown. Typed arrays of it keep their ArrayBuffer, and show the version that the view shows. */
  readonly value: T
  readonly name: string
  /** The version that is shown, or parked. */
  readonly version: number
  readonly label: string | undefined
  readonly parked: boolean
  readonly closed: boolean
  /**
   * Shows the newest version, or this one, or the newest with this label; false: it was shown already. `timeout`:
   * milliseconds to wait until it exists. UnsupportedError: it has another layout, or shares its segment. After an error
   * the view is as it was.
   */
  switch (options?: VersionOptions & WorkOptions & { timeout?: number }): Promise<boolean>
  /**
   * Gives the memory up, and keeps content and addresses; false: it was parked already. On the host typed arrays read
   * as zeros until resume(); to read on a GPU is an error that ends the context.
   */
  park (options?: WorkOptions): Promise<boolean>
  /** Shows what was parked again; false: it was not parked. `timeout`: milliseconds to wait for room. NoSpaceError. */
  resume (options?: RequestOptions & { timeout?: number }): Promise<boolean>
  /** Infos of versions newer than the one that is shown. */
  versions (options?: WatchOptions): AsyncGenerator<ObjectInfo, void, void>
  /** Ends the view. Its typed arrays read as zeros from then on. */
  close (): void
  [Symbol.dispose] (): void
  [Symbol.asyncDispose] (): Promise<void>
}

/** One frame of a stream, in its slot. */
export interface Frame<V extends Values = Values> {
  /** Grows; numbers of one writer follow one another. */
  readonly number: bigint
  /** When it was published, by process.hrtime.bigint()'s clock; 0 before. */
  readonly timeNs: bigint
  /** Frames between the last one that was read and this one. */
  readonly missed: number
  /** Of what was published, from the slot's beginning on. */
  readonly byteLength: number
  /** All elements of the slot, in C order. Do not use it once the frame is given back. */
  readonly array: V
  /** The slot, on a GPU. */
  readonly deviceData?: DeviceMemory
}

export interface WritableFrame<V extends Values = Values> extends Frame<V> {
  /** Shows the frame to readers, at once; on a GPU when the work on `stream` is done. */
  publish (options?: { byteLength?: number, stream?: StreamLike }): Promise<void>
}

export interface ReadableFrame<V extends Values = Values> extends Frame<V> {
  /**
   * Of a frame that was read `ahead`: work that is queued on `stream` from now on begins when the frame is complete, by the
   * GPU alone.
   */
  wait (options?: { stream?: StreamLike }): Promise<void>
  /** Gives the frame back, at once; on a GPU when the work on `stream` is done. More than one call is fine. */
  done (options?: { stream?: StreamLike }): Promise<void>
  [Symbol.dispose] (): void
  [Symbol.asyncDispose] (): Promise<void>
}

interface Stream {
  readonly name: string
  /** These are undefined until a reader has joined. */
  readonly dtype: string | undefined
  /** Of a frame. */
  readonly shape: number[] | undefined
  readonly slots: number | undefined
  readonly device: string | undefined
  readonly closed: boolean
  /** Resolves when it is ended. Typed arrays of a writer's frames have no elements any more. */
  close (): Promise<void>
  [Symbol.dispose] (): void
  [Symbol.asyncDispose] (): Promise<void>
}

export interface StreamOptions extends RequestOptions {
  /** Of a frame. */
  dtype: string
  /** Of a frame. Default: one element. */
  shape?: number[]
  /** From 2 to 128; readers hold some of them. Default 8. */
  slots?: number
  device?: string
  /** Rights of others to read (4) and to write (2): an octal string or a number. Default "0600". */
  mode?: string | number
  /** Milliseconds to wait for memory, and for a former writer to be over. Default 0. */
  timeout?: number
}

export interface ReadOptions extends RequestOptions {
  /** Every frame, in order, rather than the newest. */
  each?: boolean
  /** With `each`: ask the writer to wait before this reader misses a frame. */
  waits?: boolean
  /** How many of the newest frames are kept for this reader. Default 0; with `each` 2. */
  lag?: number
  /** How many frames it may hold at once. Default 1. */
  hold?: number
  /**
   * On a GPU: frames before the writer's work has completed them. Let your work wait by frame.wait(). CanceledError of a
   * later read(): a frame never was complete.
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
   * A slot to write; asked again before publish() it is the same one. `timeout`: milliseconds to wait for readers that
   * want to be waited for, Infinity: for ever; then they miss frames. Default 0.
   */
  next (options?: RequestOptions & { timeout?: number }): Promise<WritableFrame<V>>
  close (): Promise<void>
  [Symbol.dispose] (): void
  [Symbol.asyncDispose] (): Promise<void>
}

/** Each iteration releases the previous frame. The loop ends when the stream's writer has ended, which closes the reader. */
export class StreamReader<V extends Values = Values> implements Stream, AsyncIterableIterator<ReadableFrame<V>> {
  private constructor ()
  readonly name: string
  readonly dtype: string | undefined
  readonly shape: number[] | undefined
  readonly slots: number | undefined
  readonly device: string | undefined
  readonly closed: boolean
  /** Resolves when it takes part in the stream. */
  ready (): Promise<this>
  /**
   * The next frame, which its done() gives back. `timeout`: milliseconds to wait for it. TimeoutError: none came;
   * UnavailableError: the writer has ended; BusyError: all are held that may be.
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
  /** Aborted when nobody waits for the name any more. */
  signal: AbortSignal
}

/** Returns a value for put(); undefined: it has published the name itself. */
export type Load = (name: string, by: WantedBy) => Publishable | undefined | Promise<Publishable | undefined>

/** `signal` ends the wait for the daemon's consent, not the provider. */
export interface ProvideOptions extends PutOptions {
  /** How many names are loaded at the same time. Default 16. */
  concurrency?: number
  /** Milliseconds after which a load is abandoned: waiting calls get an UnavailableError. Default 300 000. */
  loadTimeout?: number
}

/** Makes names that clients wait for, until close(). */
export interface Provider {
  readonly prefix: string
  readonly closed: boolean
  /** Aborts the signals of loads under way, and resolves when these have ended. */
  close (): Promise<void>
  [Symbol.asyncDispose] (): Promise<void>
}

export interface Watch extends AsyncIterableIterator<WatchEvent> {
  return (): Promise<IteratorResult<WatchEvent>>
  [Symbol.asyncDispose] (): Promise<void>
}

export interface ClientEvents {
  /** The client has connected for the first time. Only with lazyConnect can a listener hear it. */
  connect: []
  /** The client has reconnected: watches report every existing object again. */
  reconnect: []
  /** The connection broke, and no daemon answered within the timeout. The next call reconnects, unless that is turned off. */
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
  /** Which run of the daemon this is; "" until it has connected. */
  readonly instance: string
  /** Connects now, if the client has not connected yet (lazyConnect) or has lost the connection. */
  connect (options?: RequestOptions): Promise<void>
  close (): void
  [Symbol.dispose] (): void
  [Symbol.asyncDispose] (): Promise<void>

  open<T extends AnyObject = AnyObject> (what: string | Shared<T>, options?: OpenOptions): Promise<T>
  openMany<T extends AnyObject = AnyObject> (names: readonly string[], options?: OpenManyOptions & { partial?: false }): Promise<T[]>
  openMany<T extends AnyObject = AnyObject> (names: readonly string[], options: OpenManyOptions & { partial: true }): Promise<(T | GpubufError)[]>

  /** Opens a live object as its only writer; `timeout`: milliseconds to wait for other writers to end. */
  claim<T extends AnyObject = AnyObject> (name: string, options?: RequestOptions & { timeout?: number }): Promise<T>
  /** Shows one version of a name after another at the same addresses; each needs a segment of its own: `own`. */
  follow<T extends AnyObject = AnyObject> (name: string, options?: VersionOptions & { timeout?: number }): Promise<View<T>>
  /** Publishes a copy that `write` has changed as the next version, which it resolves with; nothing if `write` throws. */
  edit<T extends AnyObject = AnyObject> (name: string, write: (object: T) => unknown, options?: EditOptions): Promise<number>
  /** Creates a stream, or takes it over, and becomes its writer. BusyError: somebody else writes. */
  stream<V extends Values = Values> (name: string, options: StreamOptions): Promise<StreamWriter<V>>
  /** Takes part in a stream as a reader. Errors come with the first frame. */
  read<V extends Values = Values> (name: string, options?: ReadOptions): StreamReader<V>

  create (name: string, layout: { kind: 'bytes', bytes: number }, options?: MakeOptions): Promise<Bytes>
  create (name: string, layout: Extract<Layout, { kind: 'bundle' }>, options?: MakeOptions): Promise<Bundle>
  create (name: string, layout: Extract<Layout, { kind: 'array' }>, options?: MakeOptions): Promise<NDArray>
  create (name: string, layout: Extract<Layout, { kind: 'column' }>, options?: MakeOptions): Promise<Column>
  create (name: string, layout: Extract<Layout, { kind: 'table' }>, options?: MakeOptions): Promise<Table>
  put (name: string, value: Publishable, options?: PutOptions): Promise<number>
  /** Values by name; resolves with their versions. */
  putMany (values: ReadonlyMap<string, Publishable> | { readonly [name: string]: Publishable }, options?: PutOptions & { partial?: false }): Promise<number[]>
  putMany (values: ReadonlyMap<string, Publishable> | { readonly [name: string]: Publishable }, options: PutOptions & { partial: true }): Promise<(number | Error)[]>

  stat (name: string, options?: VersionOptions): Promise<ObjectInfo>
  /** Whether there is an object of that name that the program may open. */
  has (name: string, options?: VersionOptions): Promise<boolean>
  /** Resolves when the daemon has answered. */
  ping (options?: RequestOptions): Promise<void>
  /**
   * Objects whose names begin with a text, or match a pattern: `*` stands for any text, `?` for one character. With
   * `versions` each name's older versions follow its current one.
   */
  list (names?: string, options?: RequestOptions & { versions?: boolean }): Promise<ObjectInfo[]>
  /** The current version of a name, then each version that is sealed: for a reader that follows them. */
  versions (name: string, options?: WatchOptions): AsyncGenerator<ObjectInfo, void, void>
  /** Deletes a name with all its versions; with `version` or `label` of an older version, that version only. */
  delete (name: string, options?: VersionOptions): Promise<void>
  /**
   * Deletes an array of names, which are no patterns, or all names that match a pattern, as of list(). An object that has
   * the pattern for its name is deleted alone.
   */
  delete (names: string | readonly string[], options?: RequestOptions): Promise<void>
  pin (name: string, options?: RequestOptions): Promise<void>
  unpin (name: string, options?: RequestOptions): Promise<void>
  /** Deletes it `ttl` milliseconds from now, in place of an earlier time; 0: it stays. */
  expire (name: string, ttl: number, options?: VersionOptions): Promise<void>
  /** Moves an object off its device now. Default: to the first tier that there is. */
  spill (name: string, options?: VersionOptions & { tier?: 'host' | 'disk' }): Promise<void>
  /** Brings an object back to its device before it is opened; `timeout`: milliseconds to wait for room there. */
  restore (name: string, options?: VersionOptions & { timeout?: number }): Promise<void>
  alias (name: string, of: string, options?: RequestOptions & {
    slice?: { offset: number, length: number }, columns?: string[], mode?: string | number,
    replace?: boolean, label?: string, keep?: number
  }): Promise<number>
  leases (name?: string, options?: RequestOptions): Promise<{ leases: LeaseInfo[], mapped: { session: number, pid: number, uid: number, client: string, segment: number, bytes: number, retiring?: boolean }[], truncated?: boolean }>
  stats (options?: RequestOptions): Promise<Record<string, unknown>>
  call (method: string, params?: Record<string, unknown>, options?: RequestOptions): Promise<Record<string, unknown>>
  watch (prefix?: string, options?: WatchOptions): Watch
  /** Makes absent names that begin with `prefix` when clients wait for them. */
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

/** Which apache-arrow toArrow() uses; by default the one that `import` or `require` finds. */
export function setArrow (module: unknown): void

export class GpubufError extends Error {
  constructor (message: string, kind?: string, errno?: number)
  /** As on the wire: "not_found". */
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
