// SQL over a published table: DuckDB gets the table batch by batch, as columns.
//
//   npm install gpubufd apache-arrow @duckdb/node-api
//   gpubufctl put movies examples/data/movies.csv
//   node duckdb.mjs movies 'SELECT "Major Genre", count(*), avg("IMDB Rating") FROM movies GROUP BY 1 ORDER BY 2 DESC'

import { DuckDBDataChunk, DuckDBInstance, DOUBLE, BIGINT, VARCHAR, BOOLEAN } from '@duckdb/node-api'
import { connect } from 'gpubufd'

const CHUNK = 2048 // rows that DuckDB takes at a time

/** DuckDB's type for a column, and the function that converts its values. */
function kindOf (dtype) {
  if (dtype === 'bool') return [BOOLEAN, value => value]
  if (/^u?int(8|16|32)$|^int64$/.test(dtype)) return [BIGINT, BigInt]
  if (/^float/.test(dtype)) return [DOUBLE, Number]
  return [VARCHAR, String] // text, dictionaries of text, and all other types as text
}

const quoted = name => `"${name.replaceAll('"', '""')}"`

/** Copies a published table into a new table of DuckDB. */
async function load (connection, table, name) {
  const kinds = table.columns.map(column => kindOf(column.dtype))
  const columns = table.columnNames.map((column, i) => `${quoted(column)} ${kinds[i][0]}`)
  await connection.run(`CREATE TABLE ${quoted(name)} (${columns.join(', ')})`)
  const appender = await connection.createAppender(name)
  for await (const batch of table.batches(CHUNK)) {
    const chunk = DuckDBDataChunk.create(kinds.map(([type]) => type))
    chunk.setColumns(kinds.map(([, convert], i) =>
      Array.from(batch.getChildAt(i), value => value === null ? null : convert(value))))
    appender.appendDataChunk(chunk)
  }
  appender.closeSync()
}

const [name, query] = process.argv.slice(2)
if (!query) {
  console.error("usage: node duckdb.mjs NAME 'SELECT … FROM NAME'")
  process.exit(2)
}
const client = await connect()
const connection = await (await DuckDBInstance.create()).connect()
const table = await client.open(name)
await load(connection, table, name)
table.release()
client.close()
const result = await connection.runAndReadAll(query)
console.table(result.getRowObjectsJson())
