export * from './index.cjs'
import * as main from './index.cjs'
export default main
