-- Pieces of other buffers for the prompt: what was yanked, saved, or visible when one went from
-- buffer to buffer. A bounded list without near copies, in the order in which they came.
--
-- The pieces stand at the prompt's beginning, so a change here makes everything after it be computed
-- anew. New ones therefore wait until nothing was typed for a while; and when there are too many, a
-- quarter of them goes at once.
local config = require('hearth.config')

local api = vim.api
local M = { waiting = {}, list = {} }

local LEAST_LINES = 3

local function set_of(text)
  local set, n = {}, 0
  for line in text:gmatch('[^\n]+') do
    line = line:match('^%s*(.-)%s*$')
    if line ~= '' and not set[line] then
      set[line], n = true, n + 1
    end
  end
  return set, n
end

-- The share of lines that two pieces have in common, 0 to 1.
local function similarity(a, b)
  local both = 0
  for line in pairs(a.set) do
    both = both + (b.set[line] and 1 or 0)
  end
  local all = a.n + b.n - both
  return all > 0 and both / all or 0
end

local function drop_similar(list, chunk)
  for i = #list, 1, -1 do
    if similarity(list[i], chunk) > 0.5 then
      if list[i].text == chunk.text then
        return false
      end
      table.remove(list, i)
    end
  end
  return true
end

-- Notes lines of a buffer. Pieces of a few lines are not worth keeping.
function M.add(buffer, lines)
  if config.options.ring.chunks == 0 or #lines < LEAST_LINES then
    return
  end
  local text = table.concat(lines, '\n', 1, math.min(#lines, config.options.ring.lines)) .. '\n'
  if #text > 64 * config.options.ring.lines * 4 then
    return -- lines that no person wrote
  end
  local chunk = { buffer = buffer, text = text,
    name = vim.fn.fnamemodify(api.nvim_buf_get_name(buffer), ':.') }
  chunk.set, chunk.n = set_of(text)
  if drop_similar(M.waiting, chunk) then
    table.insert(M.waiting, chunk)
    if #M.waiting > config.options.ring.chunks then
      table.remove(M.waiting, 1)
    end
  end
end

-- Notes the lines around the cursor of the current window.
function M.add_around(buffer)
  local row = api.nvim_win_get_cursor(0)[1]
  local half = math.floor(config.options.ring.lines / 2)
  local first = math.max(0, row - half)
  M.add(buffer, api.nvim_buf_get_lines(buffer, first, first + config.options.ring.lines, false))
end

-- Takes what waits into the prompt. Returns whether that changed it.
function M.settle()
  local changed = false
  for _, chunk in ipairs(M.waiting) do
    if drop_similar(M.list, chunk) then
      table.insert(M.list, chunk)
      changed = true
    end
  end
  M.waiting = {}
  local most = config.options.ring.chunks
  if #M.list > most then
    for _ = 1, math.max(#M.list - most, math.floor(most / 4)) do
      table.remove(M.list, 1)
    end
  end
  return changed
end

-- The pieces for a buffer's prompt: those of other buffers.
function M.chunks(buffer)
  local list = {}
  for _, chunk in ipairs(M.list) do
    if chunk.buffer ~= buffer then
      list[#list + 1] = chunk
    end
  end
  return list
end

function M.clear()
  M.waiting, M.list = {}, {}
end

return M
