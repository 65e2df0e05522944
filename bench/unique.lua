-- wrk: each request has a query of its own, unlike those of every other run with another SEED.
local seed, count = os.getenv("SEED") or "", 0
request = function()
  count = count + 1
  return wrk.format("GET", wrk.path .. "?" .. seed .. "." .. count)
end
