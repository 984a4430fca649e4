// The package for `import`. It uses the ES modules of apache-arrow, as the program does.

import main from './index.cjs'

const arrow = await import('apache-arrow').catch(() => undefined)
if (arrow) main.setArrow(arrow)

export default main
export const {
  connect, Client, SharedObject, Bytes, NDArray, Column, Table, Bundle, View, StreamWriter, StreamReader, setArrow, version, GpubufError,
  ParseError, RequestError, MethodError, InvalidError, InternalError,
  NotFoundError, ExistsError, NoSpaceError, DeniedError, BusyError,
  TimeoutError, StaleError, LimitError, DeviceError, UnsupportedError, UnavailableError,
  NoMemoryError, ConnectError, ClosedError, ProtocolError, AgainError,
  ForkedError, SystemError, CanceledError
} = main
