-- How long the editor's loop was held up: each callback of the plugin runs through here.
local M = { kinds = {} }
local hrtime = vim.loop.hrtime

-- Nanoseconds that this thread computed: unlike the wall clock's, without what other processes took
-- from us meanwhile.
local function computed()
  return 0
end

local has_ffi, ffi = pcall(require, 'ffi')
if has_ffi then
  pcall(ffi.cdef, [[
    struct hearth_timespec { long seconds, nanoseconds; };
    int clock_gettime(int, struct hearth_timespec *);
  ]])
  local THREAD = 3 -- CLOCK_THREAD_CPUTIME_ID
  local ok, now = pcall(ffi.new, 'struct hearth_timespec')
  if ok and pcall(function() return ffi.C.clock_gettime(THREAD, now) end) then
    computed = function()
      ffi.C.clock_gettime(THREAD, now)
      return tonumber(now.seconds) * 1e9 + tonumber(now.nanoseconds)
    end
  end
end

-- fn, its time counted under `kind`.
function M.wrap(kind, fn)
  local k = M.kinds[kind] or { n = 0, total = 0, max = 0, max_computed = 0 }
  M.kinds[kind] = k
  return function(...)
    local start, start_computed = hrtime(), computed()
    local ok, a = pcall(fn, ...)
    local took, took_computed = hrtime() - start, computed() - start_computed
    k.n = k.n + 1
    k.total = k.total + took
    k.max = math.max(k.max, took)
    k.max_computed = math.max(k.max_computed, took_computed)
    if not ok then
      error(a, 0)
    end
    return a
  end
end

function M.reset()
  for _, k in pairs(M.kinds) do
    k.n, k.total, k.max, k.max_computed = 0, 0, 0, 0
  end
end

-- The longest callback in microseconds, its kind, and the longest that one computed.
function M.max()
  local most, which, most_computed = 0, 'none', 0
  for kind, k in pairs(M.kinds) do
    if k.max > most then
      most, which = k.max, kind
    end
    most_computed = math.max(most_computed, k.max_computed)
  end
  return most / 1000, which, most_computed / 1000
end

function M.lines()
  local list = {}
  for kind, k in pairs(M.kinds) do
    if k.n > 0 then
      list[#list + 1] = ('%-8s %6d times, mean %4.0f us, longest %5.0f us, %5.0f of computing'):format(
        kind, k.n, k.total / k.n / 1000, k.max / 1000, k.max_computed / 1000)
    end
  end
  table.sort(list)
  return list
end

return M
