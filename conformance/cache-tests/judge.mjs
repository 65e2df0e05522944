// Classifies raw results (stdin: { engine: { id: result } }) by the suite's own rules, its dependencies honoured:
// { engine: [[id, kind, verdict, message] ...] } in the suite's order.
//
//     node judge.mjs SUITE < results.json

import { readFileSync } from 'node:fs'
import { pathToFileURL } from 'node:url'
import path from 'node:path'

const load = name => import(pathToFileURL(path.join(process.argv[2], name)))
const { default: index } = await load('tests/index.mjs')
const { determineTestResult } = await load('lib/display.mjs')

// The suite's verdicts by the sign it prints for them.
const VERDICTS = {
  '✅': 'pass',
  '⛔️': 'fail',
  '⚠️': 'fail',
  Y: 'yes',
  N: 'no',
  '🔹': 'setup failed',
  '↻': 'request repeated',
  '⁉️': 'harness failed',
  '⚪️': 'dependency failed',
  '-': 'not run'
}

const cases = index.flatMap(part => part.tests).filter(test => !test.browser_only)
const judged = {}
for (const [engine, results] of Object.entries(JSON.parse(readFileSync(0)))) {
  judged[engine] = cases.map(test => {
    const sign = determineTestResult(index, test.id, results)[2]
    const result = results[test.id]
    return [test.id, test.kind ?? 'required', VERDICTS[sign] ?? sign, Array.isArray(result) ? result[1] : '']
  })
}
process.stdout.write(JSON.stringify(judged))
