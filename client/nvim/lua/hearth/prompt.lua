-- The prompt of a buffer and a place in it, as token ids: which lines, which other pieces, which
-- order; made a step at a time.
--
-- What comes before the cursor's own text must not change while one types, or it is computed again:
-- the window's first line moves in coarse steps, and for a model that wants the prefix first, what is
-- typed since a line began stands after the middle token, so that the suffix keeps its place.
local config = require('hearth.config')
local connection = require('hearth.connection')
local native = require('hearth.native')
local ring = require('hearth.ring')

local api = vim.api
local M = {}

local LINE_BYTES = 8192   -- of the cursor's own line, to either side
local MUCH_BYTES = 16384  -- read at once are enough for one callback
local ANCHOR_LINES = 32   -- lines after the middle token before they become prefix
local ids, room           -- uint32_t[room], for one prompt after the other
local joined, joined_room -- char[joined_room], the same for a prefix: no garbage with each key

-- The first line of the window, in steps of a quarter of it.
local function first_line(buffer, row)
  local o = config.options
  local step = math.max(1, math.floor(o.prefix_lines / 4))
  local first = math.max(0, row - o.prefix_lines)
  first = math.ceil(first / step) * step
  local most = o.window_bytes
  while first < row and
      api.nvim_buf_get_offset(buffer, row) - api.nvim_buf_get_offset(buffer, first) > most do
    first = math.min(row, first + step)
  end
  return first
end

local function last_line(buffer, row, count)
  local o = config.options
  local last = math.min(count, row + 1 + o.suffix_lines)
  local start = api.nvim_buf_get_offset(buffer, row + 1)
  while last > row + 1 and api.nvim_buf_get_offset(buffer, last) - start > o.window_bytes / 4 do
    last = row + 1 + math.floor((last - row - 1) / 2)
  end
  return last
end

-- ---- the buffer's text ----------------------------------------------------------------------------

-- [buffer] = { first, row, above, last, below }: the text of lines [first, row) and (row, last), as it
-- was read. A key changes the cursor's line; the others are read once.
local texts = {}
local bytes_read = 0 -- in all

local function lines(buffer, first, last)
  if first >= last then
    return ''
  end
  local text = table.concat(api.nvim_buf_get_lines(buffer, first, last, false), '\n') .. '\n'
  bytes_read = bytes_read + #text
  return text
end

-- Lines [first, last) became [first, new_last).
local function on_lines(_, buffer, _, first, last, new_last)
  local t = texts[buffer]
  if not t then
    return true -- detach
  end
  if first < t.row then
    t.above = nil
  end
  if last > t.row + 1 or new_last ~= last then
    t.below = nil
  end
end

local function text_of(buffer)
  if not texts[buffer] then
    texts[buffer] = { row = -1 }
    api.nvim_buf_attach(buffer, false, { on_lines = on_lines,
      on_reload = function() texts[buffer] = { row = -1 } end,
      on_detach = function() texts[buffer] = nil end })
  end
  return texts[buffer]
end

function M.forget(buffer)
  texts[buffer] = nil
end

local function above(buffer, first, row)
  local t = text_of(buffer)
  if not t.above or t.first ~= first or t.row > row then
    t.above = lines(buffer, first, row)
    t.below = nil
  elseif t.row < row then
    t.above = t.above .. lines(buffer, t.row, row)
    t.below = nil
  end
  t.first, t.row = first, row
  return t.above
end

-- After above(), for the same row.
local function below(buffer, row, count)
  local t = text_of(buffer)
  t.below = t.below or lines(buffer, row + 1, last_line(buffer, row, count))
  return t.below
end

-- (Of the current buffer.) The text before a place from line `first` on without its own line, that line's two parts, and all
-- after the place.
local function read(buffer, row, col, first)
  local count = api.nvim_buf_line_count(buffer)
  local length = vim.fn.col({ row + 1, '$' }) - 1
  local from = math.max(0, col - LINE_BYTES)
  local before = api.nvim_buf_get_text(buffer, row, from, row, col, {})[1] or ''
  local stop = math.max(col, math.min(length, col + LINE_BYTES))
  local after = api.nvim_buf_get_text(buffer, row, col, row, stop, {})[1] or ''
  local t, text = text_of(buffer), above(buffer, first, row)
  local rest = row + 1 < count and below(buffer, row, count) or nil
  if not t.suffix or t.suffix_after ~= after or t.suffix_rest ~= rest then
    t.suffix_after, t.suffix_rest = after, rest
    t.suffix = rest and after .. '\n' .. rest or after
  end
  return text, before, after, t.suffix
end

-- ---- the place ------------------------------------------------------------------------------------

-- Where the text after the middle token begins: at this line, or where it did while the same text
-- grew. `last` is the place before, of the same buffer.
local function anchor(last, place)
  if last and last.anchor and last.first == place.first and last.suffix == place.suffix
      and place.row >= last.anchor and place.row - last.anchor <= ANCHOR_LINES
      and place.above:sub(1, #last.fixed) == last.fixed then
    return last.anchor, last.fixed
  end
  return place.row, place.above
end

-- The white space at the end of two texts that stand one after the other.
local function white_of(first, second)
  local function length(text)
    local n = #text
    while n > 0 and text:find('^%s', n) do
      n = n - 1
    end
    return n
  end
  local n = length(second)
  local m = n == 0 and length(first) or #first
  return first:sub(m + 1) .. second:sub(n + 1)
end

-- What the prompt at (row, col) of the current buffer, both from 0, is made of. `last`: the place of the request before,
-- or nil.
function M.place(buffer, row, col, last)
  local p = { buffer = buffer, row = row, col = col, first = first_line(buffer, row) }
  local before_us = bytes_read
  p.above, p.before, p.after, p.suffix = read(buffer, row, col, p.first)
  p.took_long = bytes_read - before_us > MUCH_BYTES
  local fim = connection.info().fim
  p.middle, p.prefix_bytes = '', #p.above + #p.before
  if fim == 0 then
    p.order = native.FIM_PLAIN
    -- A line break and the indentation after it are one token, in the words a model knows.
    p.white = white_of(p.above, p.before)
    p.prefix_bytes = p.prefix_bytes - #p.white
  elseif fim == 1 then
    p.order = native.FIM_PSM
    p.anchor, p.fixed = anchor(last, p)
    p.middle = p.above:sub(#p.fixed + 1) .. p.before
  else
    p.order = native.FIM_SPM
  end
  return p
end

-- Is the text before the cursor that of `last` and then `typed`, and nothing else changed?
function M.continues(last, p)
  if not last or last.buffer ~= p.buffer or last.suffix ~= p.suffix or last.first ~= p.first then
    return nil
  end
  local old, new = last.before, p.before
  if last.above ~= p.above then
    old, new = last.above .. old, p.above .. new
  end
  if #new > #old and new:sub(1, #old) == old then
    return new:sub(#old + 1)
  end
end

local function fill(p)
  local _, ffi = connection.native()
  local f = native.new('fim')
  local chunks = ring.chunks(p.buffer)
  f.suffix, f.suffix_bytes = p.suffix, #p.suffix
  f.middle, f.middle_bytes = p.middle, #p.middle
  f.order = p.order
  f.step_bytes = config.options.step_bytes
  if #chunks > 0 then
    p.chunks = ffi.new('struct hearth_chunk[?]', #chunks)
    for i, c in ipairs(chunks) do
      local chunk = p.chunks[i - 1]
      chunk.name, chunk.text, chunk.text_bytes = c.name, c.text, #c.text
    end
    f.extra, f.n_extra = p.chunks, #chunks
    -- Names belong to prompts of several files; one file alone was trained without.
    local name = vim.fn.fnamemodify(api.nvim_buf_get_name(p.buffer), ':.')
    local repo = vim.fn.fnamemodify(vim.fn.getcwd(), ':t')
    f.name, f.repo = name, repo
    p.strings = { chunks, name, repo } -- the structure only points to them
  end
  p.fim = f
end

-- Gives the structure its prefix, in the memory that all prompts share.
local function join(p, ffi)
  if p.fixed then
    p.fim.prefix, p.fim.prefix_bytes = p.fixed, #p.fixed
    return
  end
  local bytes = #p.above + #p.before
  if not joined or joined_room < bytes then
    joined_room = 2 * bytes + 4096
    joined = ffi.new('char[?]', joined_room)
  end
  ffi.copy(joined, p.above, #p.above)
  ffi.copy(joined + #p.above, p.before, #p.before)
  p.fim.prefix, p.fim.prefix_bytes = joined, p.prefix_bytes
end

-- A step of making the prompt's ids. Returns ids and their number; nil: call again; or nil and a
-- line: it cannot be made. The ids stay until the next call for whatever prompt.
function M.step(p)
  local lib, ffi, handle = connection.native()
  if not p.fim then
    fill(p)
  end
  join(p, ffi)
  local context = connection.info().context
  if room ~= context then
    ids, room = ffi.new('uint32_t[?]', context), context
  end
  local n = tonumber(lib.hearth_fim(handle, p.fim, ids, room))
  if n == native.EAGAIN then
    return nil
  elseif n < 0 then
    return nil, ffi.string(lib.hearth_error(handle))
  end
  return ids, n
end

return M
