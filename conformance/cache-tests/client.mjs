// Runs cases of the suite against one cache and prints their raw results as JSON: { id: true | [class, message] }.
//
//     node client.mjs SUITE BASE_URL CASES_AT_A_TIME [ID ...]
//
// Without an id: all cases of the suite's index that are not for browsers alone. With --dump as the last word, the suite's own
// report of each request and response goes to stderr. The suite itself is imported from where npm put it.

import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'
import path from 'node:path'

const REQUEST_LIMIT_MS = 20000

const [suite, baseUrl, atATime, ...ids] = process.argv.slice(2)
const dump = ids.at(-1) === '--dump'
if (dump) {
  ids.pop()
  console.log = console.error
}
const load = name => import(pathToFileURL(path.join(suite, name)))

const fetch = createRequire(path.join(suite, 'package.json'))('node-fetch')
const { default: index } = await load('tests/index.mjs')
const { makeCacheTest, testResults } = await load('client/test.mjs')
const config = await load('client/config.mjs')

// A cache that does not answer fails its case, it does not hold up the run.
config.setFetch((url, init) => fetch(url, { timeout: REQUEST_LIMIT_MS, ...init }))
config.setBaseUrl(baseUrl)
config.setUseBrowserCache(false)

const cases = index.flatMap(part => part.tests).filter(test => !test.browser_only)
const chosen = ids.length ? cases.filter(test => ids.includes(test.id)) : cases
for (const test of chosen) test.dump = dump
for (let at = 0; at < chosen.length; at += Number(atATime)) {
  await Promise.all(chosen.slice(at, at + Number(atATime)).map(makeCacheTest))
}
// The suite leaves bodies unread and so connections open; they are not waited for.
process.stdout.write(JSON.stringify(testResults), () => process.exit())
