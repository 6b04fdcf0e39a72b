-- Completions: a request for each change, the ghost text that its answer becomes, and what of it is
-- taken over.
--
-- The newest change wins: submitting voids what the buffer asked before, and only the newest
-- request's answer is looked at. While what is typed is what the ghost says, the ghost stays and only
-- gets shorter; its rest is the guess of the new request, whose answer takes its place when it says
-- something else, or is complete.
local config = require('hearth.config')
local connection = require('hearth.connection')
local ghost = require('hearth.ghost')
local measure = require('hearth.measure')
local native = require('hearth.native')
local prompt = require('hearth.prompt')

local api = vim.api
local M = {
  enabled = true,
  counts = { shown = 0, accepted = 0, kept = 0, warmed = 0 },
  last_prompt = 0, -- tokens of a prompt, lately
  last = nil, -- the last request that ended: { prompt_tokens, cached_tokens, ... }
}

-- [buffer] = { place, tick, request, ghost = { text, source, offset } }
-- `source` is the request whose answer the ghost is, `offset` where in its text the ghost begins.
local sessions = {}

function M.session(buffer)
  sessions[buffer] = sessions[buffer] or {}
  return sessions[buffer]
end

-- ---- where ----------------------------------------------------------------------------------------

function M.allowed(buffer)
  local bo, o = vim.bo[buffer], config.options
  if not M.enabled or vim.b[buffer].hearth == false or bo.buftype ~= '' or not bo.modifiable then
    return false
  end
  local by_type = o.filetypes[bo.filetype]
  if by_type == nil then
    by_type = o.filetypes['*']
  end
  return by_type == true and not (o.ignore and o.ignore(buffer))
end

local function inserting()
  return api.nvim_get_mode().mode:sub(1, 1) == 'i'
end

local function cursor()
  local at = api.nvim_win_get_cursor(0)
  return at[1] - 1, at[2]
end

-- Is the buffer, and the cursor in it, as they were when the session's request was made?
local function is_current(s, buffer)
  if api.nvim_get_current_buf() ~= buffer or not s.place then
    return false
  end
  local row, col = cursor()
  return s.place.row == row and s.place.col == col
    and s.tick == api.nvim_buf_get_changedtick(buffer)
end

-- ---- the ghost ------------------------------------------------------------------------------------

local function clear(buffer)
  local s = M.session(buffer)
  if s.ghost then
    s.ghost = nil
    ghost.clear(buffer)
  end
end

local function draw(buffer)
  local s = M.session(buffer)
  if not s.ghost or vim.fn.pumvisible() == 1 then
    ghost.clear(buffer)
    s.drawn = false
    return
  end
  ghost.draw(buffer, s.place.row, s.place.col, s.ghost.text, s.place.after)
  s.drawn = true
end

-- The menu of words came or went.
function M.redraw()
  local buffer = api.nvim_get_current_buf()
  local s = sessions[buffer]
  if s and s.ghost and is_current(s, buffer) then
    draw(buffer)
  end
end

-- Is there a ghost that can be taken over?
function M.visible()
  local buffer = api.nvim_get_current_buf()
  local s = sessions[buffer]
  return s ~= nil and s.ghost ~= nil and s.drawn == true and is_current(s, buffer)
end

-- An answer as it is shown: not so many lines, and not what stands below already. Returns the text,
-- how much of the answer was left out before it, and whether it was cut.
local function trim(s, text)
  local skipped = 0
  if s.place.white and s.place.white ~= '' then -- it was typed already
    local white = text:match('^%s*')
    skipped, text = #white, text:sub(#white + 1)
  end
  local lines = vim.split(text, '\n', { plain = true })
  local most = s.place.single and 1 or config.options.max_lines
  local below = s.place.suffix:match('\n([^\n]*%S[^\n]*)')
  local n = 0
  for i, line in ipairs(lines) do
    if i > most or (i > 1 and i < #lines and line == below) then
      break
    end
    n = i
  end
  local cut = n < #lines
  text = table.concat(lines, '\n', 1, n)
  return text, skipped, cut
end

local function on_answer(r)
  local buffer = r.buffer
  local s = sessions[buffer]
  if not s or s.request ~= r then
    return
  end
  if r.done then
    M.last = r
    M.last_prompt = r.prompt_tokens or M.last_prompt
  end
  if r.done and (r.reason == native.ERROR or r.reason == native.CANCELLED) then
    M.problem = r.error or M.problem
    return
  end
  if not is_current(s, buffer) or not inserting() then
    return
  end
  local text, skipped, cut = trim(s, r.text)
  if cut and not r.done then
    connection.cancel(buffer)
    r.done = true
  end
  local old = s.ghost and s.ghost.text or ''
  if not r.done and #old >= #text and old:sub(1, #text) == text then
    return -- what is shown is ahead
  end
  if text:match('^%s*$') then
    if r.done then
      clear(buffer)
    end
    return
  end
  if not s.ghost then
    M.counts.shown = M.counts.shown + 1
  end
  s.ghost = { text = text, source = r, offset = skipped }
  draw(buffer)
end

-- ---- guesses --------------------------------------------------------------------------------------

-- Ids of what the ghost still shows: of the answer it came from, from the first whole token on; the
-- rest of a token that was typed in part is tokenized.
local function guess_of(g)
  local lib, ffi, handle = connection.native()
  local r, at, k = g.source, 0, 1
  local one = ffi.new('uint32_t[1]')
  while k <= #r.ids and at < g.offset do
    one[0] = r.ids[k]
    at = at + math.max(0, tonumber(lib.hearth_detokenize(handle, one, 1, 0, nil, 0)))
    k = k + 1
  end
  local list = {}
  if at > g.offset then
    local part = r.text:sub(g.offset + 1, at)
    local few = ffi.new('uint32_t[64]')
    local n = tonumber(lib.hearth_tokenize(handle, part, #part, 0, few, 64))
    for i = 0, math.min(n, 64) - 1 do
      list[#list + 1] = few[i]
    end
  end
  for i = k, #r.ids do
    list[#list + 1] = r.ids[i]
  end
  return list
end

-- ---- requests -------------------------------------------------------------------------------------

local function request_of(s, ids, n, max_tokens)
  local _, ffi = connection.native()
  local o, q = config.options, native.new('request')
  for name, value in pairs(o.request) do
    q[name] = value
  end
  q.tokens, q.n_tokens, q.max_tokens = ids, n, max_tokens
  local stops = vim.list_extend({}, o.stop)
  if s.place.single or o.max_lines == 1 then
    stops[#stops + 1] = '\n'
  end
  if #stops > 0 then
    s.stops = ffi.new('const char *[?]', #stops, stops)
    s.stop_texts = stops
    q.stops, q.n_stops = s.stops, #stops
  end
  if s.ghost and max_tokens > 0 then
    local guess = guess_of(s.ghost)
    if #guess > 0 then
      s.guess = ffi.new('uint32_t[?]', #guess, guess)
      q.guess, q.n_guess = s.guess, #guess
    end
  end
  return q
end

local step

local function later(buffer, job)
  vim.defer_fn(measure.wrap('step', function() step(buffer, job) end), 0)
end

-- Makes the prompt of the session's place, one step now and the others in later turns of the loop,
-- and submits. A newer change of the buffer replaces what is not finished.
local function ask(buffer, max_tokens)
  local s = M.session(buffer)
  s.job = { place = s.place, max_tokens = max_tokens }
  if s.place.took_long then
    later(buffer, s.job)
  else
    step(buffer, s.job)
  end
end

step = function(buffer, job)
  local s = sessions[buffer]
  if not s or s.job ~= job or connection.state ~= 'ready' then
    return
  end
  local ids, n = prompt.step(job.place)
  if not ids and not n then
    later(buffer, job)
    return
  end
  s.job = nil
  if not ids then
    M.problem = n
    return
  end
  local r, why = connection.submit(buffer, request_of(s, ids, n, job.max_tokens), on_answer)
  s.request = r
  M.problem = why
end

-- ---- what happens ---------------------------------------------------------------------------------

-- Stops what the buffer asked, and forgets what it showed.
function M.stop(buffer)
  local s = sessions[buffer]
  if s then
    s.job, s.request = nil, nil
    clear(buffer)
    connection.cancel(buffer)
  end
end

function M.forget(buffer)
  if sessions[buffer] then
    sessions[buffer] = nil
    prompt.forget(buffer)
    connection.forget(buffer)
  end
end

-- Shortens the ghost by what was typed where the two agree, else removes it. Removes it, too, where it
-- came by another connection, whose ids may be of another vocabulary.
local function follow(s, buffer, typed)
  local g = s.ghost
  if not g then
    return
  end
  if g.source.connection == connection.counts.connects and typed and #typed < #g.text and g.text:sub(1, #typed) == typed then
    M.counts.kept = M.counts.kept + 1
    s.ghost = { text = g.text:sub(#typed + 1), source = g.source, offset = g.offset + #typed }
  else
    clear(buffer)
  end
end

-- The text or the cursor changed: the ghost follows, and a new request is made. `force`: also where
-- nothing changed.
function M.changed(force)
  local buffer = api.nvim_get_current_buf()
  local s = M.session(buffer)
  if not M.allowed(buffer) or not inserting() then -- nor while one overwrites
    M.stop(buffer)
    return
  end
  if not connection.want() then
    clear(buffer)
    return
  end
  if not force and is_current(s, buffer) then
    return
  end
  local row, col = cursor()
  local place = prompt.place(buffer, row, col, s.place)
  follow(s, buffer, prompt.continues(s.place, place))
  place.single = place.after:find('%S') ~= nil
  s.place, s.tick, s.request, s.job = place, api.nvim_buf_get_changedtick(buffer), nil, nil
  draw(buffer)
  if #place.after > config.options.max_line_suffix and place.single then
    clear(buffer)
    connection.cancel(buffer)
    return
  end
  ask(buffer, config.options.max_tokens)
end

-- Computes the buffer's context, so that the first completion finds it: at the end of the cursor's
-- line, where `A` and `o` begin.
function M.warm()
  local buffer = api.nvim_get_current_buf()
  if not config.options.prewarm or not M.allowed(buffer) or inserting() or not connection.want() then
    return
  end
  local s = M.session(buffer)
  local row = cursor()
  s.place = prompt.place(buffer, row, #api.nvim_get_current_line(), s.place)
  s.tick = nil -- a completion is still to be asked for
  s.request = nil
  M.counts.warmed = M.counts.warmed + 1
  ask(buffer, 0)
end

-- The same where the cursor came to rest on another line, if it takes less than a second.
function M.rest()
  local s = sessions[api.nvim_get_current_buf()]
  local row = cursor()
  if s and s.place and s.place.row ~= row and connection.token_ns
      and connection.token_ns * M.last_prompt < 1e9 then
    M.warm()
  end
end

-- ---- taking over ----------------------------------------------------------------------------------

-- The part of a text that is taken at once: all, up to the first line's end, the first word.
local function part_of(text, what)
  if what == 'line' then
    return text:match('^\n?[^\n]*')
  elseif what == 'word' then
    return text:match('^%s*[%w_]+') or text:match('^%s*[^%s%w_]+') or text
  end
  return text
end

-- Puts the ghost, or its first line or word, into the buffer. Returns whether there was one.
function M.accept(what)
  if not M.visible() then
    return false
  end
  local buffer = api.nvim_get_current_buf()
  local s = sessions[buffer]
  local part = part_of(s.ghost.text, what)
  local row, col = s.place.row, s.place.col
  local lines = vim.split(part, '\n', { plain = true })
  api.nvim_buf_set_text(buffer, row, col, row, col, lines)
  local last = #lines == 1 and col + #part or #lines[#lines]
  api.nvim_win_set_cursor(0, { row + #lines, last })
  M.counts.accepted = M.counts.accepted + 1
  M.changed()
  return true
end

function M.dismiss()
  local was = M.visible()
  M.stop(api.nvim_get_current_buf())
  return was
end

-- A daemon was connected: open requests are made again.
function M.on_ready()
  for buffer, s in pairs(sessions) do
    s.request, s.job = nil, nil
    clear(buffer)
  end
  if inserting() and config.options.auto then
    M.changed(true)
  else
    M.warm()
  end
end

return M
