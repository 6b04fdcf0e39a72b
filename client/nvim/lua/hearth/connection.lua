-- The one connection to the daemon: made without waiting, watched by the editor's own loop, made
-- anew when it is needed. Buffers get slots, least recently used first.
--
-- The poll callback runs where Neovim's API must not be called: it only takes events out of the
-- library and gathers them in their requests. What there is to show is shown by a scheduled flush.
local config = require('hearth.config')
local measure = require('hearth.measure')
local native = require('hearth.native')

local uv = vim.loop
local M = {
  state = 'off', -- off, missing (no library), down (no daemon), connecting, ready
  why = nil,     -- one line where it is missing or down
  on_ready = nil, -- called when a daemon is there
  token_ns = nil, -- what a token of a prompt takes, as it was lately
  counts = { submits = 0, events = 0, stale = 0, connects = 0, polls = 0, drafted = 0, held = 0 },
}

local RETRY_NS = 1e9  -- no more attempts to connect than one a second
local FRAME_NS = 16e6 -- and to draw than one in so long
local ffi, lib, handle, poll
local event_ref, info_now
local info = {}
local slots = {}    -- [slot] = { buffer, used, request }
local serial, clock = 0, 0
local tried_ns, searches = 0, 0
local told = {}     -- what the user was told already, until it is well again
local flush_planned, flushed_ns, timer = false, 0, nil

-- Tells the user once.
local function tell(kind, line)
  if told[kind] then
    return
  end
  told[kind] = true
  vim.schedule(function()
    vim.notify('hearth: ' .. line, vim.log.levels.WARN)
  end)
end

local function error_line()
  return ffi.string(lib.hearth_error(handle))
end

-- The daemon's facts as a table of Lua values.
local function read_info()
  local i = info_now
  if lib.hearth_info(handle, i) ~= 0 then
    return
  end
  for _, name in ipairs({ 'context', 'slots', 'n_vocab', 'server_pid', 'is_away', 'resumes', 'fim' }) do
    info[name] = tonumber(i[name])
  end
  for _, name in ipairs({ 'model', 'numerics', 'fingerprint', 'server_version', 'socket_path' }) do
    info[name] = ffi.string(i[name])
  end
end

local function close(why)
  if poll then
    poll:stop()
    poll:close()
    poll = nil
  end
  if handle then
    lib.hearth_close(handle)
    handle = nil
  end
  for _, s in pairs(slots) do
    s.request = nil
  end
  slots = {}
  M.state = 'down'
  M.why = why
end

-- ---- events ---------------------------------------------------------------------------------------

local function take(e)
  local s = slots[tonumber(e.slot)]
  local r = s and s.request
  M.counts.events = M.counts.events + 1
  if not r or r.serial ~= tonumber(e.cookie) then
    M.counts.stale = M.counts.stale + 1 -- the library promises that this never happens
    return
  end
  if e.text_bytes > 0 then
    r.text = r.text .. ffi.string(e.text, e.text_bytes)
  end
  for i = 0, e.n_tokens - 1 do
    r.ids[#r.ids + 1] = e.tokens[i]
  end
  if e.kind == native.DONE then
    local result = e.result
    r.done = true
    r.reason = tonumber(result.reason)
    r.error = result.reason == native.ERROR and ffi.string(result.error_text) or nil
    r.prompt_tokens = tonumber(result.prompt_tokens)
    r.cached_tokens = tonumber(result.cached_tokens)
    r.output_tokens = tonumber(result.output_tokens)
    r.drafted = tonumber(result.drafted)
    r.accepted_drafts = tonumber(result.accepted_drafts)
    M.counts.drafted = M.counts.drafted + r.drafted
    M.counts.held = M.counts.held + r.accepted_drafts
    local computed = r.prompt_tokens - r.cached_tokens
    if computed >= 64 then
      M.token_ns = tonumber(result.prefill_ns) / computed
    end
    s.request = nil
  end
  r.fresh = true
  M.fresh = M.fresh or {}
  M.fresh[#M.fresh + 1] = r
end

local flush = measure.wrap('flush', function()
  flush_planned, flushed_ns = false, uv.hrtime()
  local list = M.fresh or {}
  M.fresh = nil
  for _, r in ipairs(list) do
    if r.fresh then
      r.fresh = false
      r.on_change(r)
    end
  end
end)

-- The first token is shown at once, those after it one frame at a time.
local function plan_flush()
  if not M.fresh or flush_planned then
    return
  end
  flush_planned = true
  local wait = math.floor((flushed_ns + FRAME_NS - uv.hrtime()) / 1e6)
  if wait <= 0 then
    vim.schedule(flush)
  else
    timer = timer or uv.new_timer()
    timer:start(wait, 0, vim.schedule_wrap(flush))
  end
end

-- Did the daemon go away, or come back?
local function look_after_daemon()
  if lib.hearth_info(handle, info_now) ~= 0
      or (info_now.is_away == info.is_away and info_now.resumes == info.resumes) then
    return
  end
  read_info()
  if info.is_away == 1 then
    tell('gone', ('the daemon at %s is gone: completions go on when it is back'):format(
      info.socket_path))
  else
    told = {}
  end
end

-- Takes what is there, and so arms the descriptor again.
local function drain()
  local rc
  repeat
    rc = lib.hearth_next(handle, native.ANY_SLOT, event_ref, 0)
    if rc == 1 then
      take(event_ref[0])
    end
  until rc ~= 1
  plan_flush()
  if rc < 0 then
    local line = error_line()
    close(line)
    tell('gone', line)
  else
    look_after_daemon()
  end
end

local function finish_connecting()
  local rc = lib.hearth_ready(handle)
  if rc == 0 then
    return
  elseif rc < 0 then
    local line = error_line()
    close(line)
    tell('down', line)
    return
  end
  info = {}
  read_info()
  M.state, M.why, told = 'ready', nil, {}
  drain()
  if M.on_ready and M.state == 'ready' then
    vim.schedule(measure.wrap('ready', M.on_ready))
  end
end

local on_poll = measure.wrap('poll', function()
  M.counts.polls = M.counts.polls + 1
  if M.state == 'connecting' then
    finish_connecting()
  elseif M.state == 'ready' then
    drain()
  end
end)

-- ---- connecting -----------------------------------------------------------------------------------

local function load()
  local path_or_line
  lib, path_or_line = native.load()
  if not lib then
    M.state, M.why = 'missing', path_or_line
    tell('missing', path_or_line)
    return false
  end
  ffi = native.ffi
  event_ref = ffi.new('const struct hearth_event *[1]')
  info_now = ffi.new('struct hearth_info')
  info_now.size = ffi.sizeof(info_now)
  return true
end

local function failed(line)
  M.state, M.why = 'down', line
  tell('down', line)
end

local function connect_to(socket)
  local o = native.new('options')
  local ref, err = ffi.new('struct hearth *[1]'), ffi.new('char[512]')
  o.flags = native.POLLABLE + native.NONBLOCK
  o.slots = config.options.slots
  o.resume_ms = config.options.resume_ms
  if lib.hearth_connect(socket, o, ref, err, 512) ~= 0 then
    failed(ffi.string(err))
    return
  end
  handle = ref[0]
  M.state = 'connecting'
  poll = uv.new_poll(lib.hearth_fd(handle))
  poll:start('r', on_poll)
  finish_connecting()
end

-- Which daemon serves the model? That asks them, and one that is stopped answers after seconds or
-- not at all: a thread waits for it.
local function find_and_connect(model)
  searches = searches + 1
  local search = searches
  M.state = 'connecting'
  uv.new_work(native.find, measure.wrap('find', function(rc, text)
    if search ~= searches or M.state ~= 'connecting' or handle then
      return
    elseif rc == 0 then
      connect_to(text)
    else
      failed(text)
    end
  end)):queue(native.path, model)
end

local function connect()
  if handle then
    return
  end
  M.counts.connects = M.counts.connects + 1
  if config.options.model then
    find_and_connect(config.options.model)
  else
    connect_to(config.options.socket)
  end
end

-- Is a daemon connected? If not, tries to connect, at most once a second.
function M.want()
  if M.state == 'ready' then
    return true
  elseif M.state == 'missing' or M.state == 'connecting' then
    return false
  end
  local now = uv.hrtime()
  if now - tried_ns < RETRY_NS then
    return false
  end
  tried_ns = now
  if lib then
    connect()
  elseif load() then -- that was enough for one callback
    M.state = 'connecting'
    vim.schedule(measure.wrap('connect', connect))
  end
  return M.state == 'ready'
end

function M.info()
  return info
end

function M.close()
  if lib then
    close(nil)
  end
  M.state, tried_ns = 'off', 0
end

-- Lets a new attempt begin at once, also one to find the library.
function M.retry()
  tried_ns, told = 0, {}
  if M.state == 'missing' then
    M.state = 'off'
  end
  return M.want()
end

-- ---- requests -------------------------------------------------------------------------------------

-- The buffer's slot; with `take`, the least recently used one where it has none.
local function slot_of(buffer, take_one)
  local oldest
  for i = 0, info.slots - 1 do
    local s = slots[i]
    if s and s.buffer == buffer then
      return i
    end
    if not s then
      oldest = oldest and slots[oldest] == nil and oldest or i
    elseif not oldest or (slots[oldest] and s.used < slots[oldest].used) then
      oldest = i
    end
  end
  if take_one and oldest then
    slots[oldest] = { buffer = buffer, used = 0 }
  end
  return take_one and oldest or nil
end

-- Submits `request` (struct hearth_request) on the buffer's slot; what runs there is superseded.
-- on_change(r) is called, never from within, when r.text, r.ids or r.done changed. Returns r, or nil
-- and a line.
function M.submit(buffer, request, on_change)
  local slot = slot_of(buffer, true)
  clock, serial = clock + 1, serial + 1
  slots[slot].used = clock
  request.cookie = serial
  local r = { serial = serial, buffer = buffer, text = '', ids = {}, on_change = on_change,
    connection = M.counts.connects }
  slots[slot].request = r
  M.counts.submits = M.counts.submits + 1
  local rc = lib.hearth_submit(handle, slot, request)
  if rc ~= 0 then
    slots[slot].request = nil
    local line = error_line()
    drain()
    return nil, line
  end
  drain()
  return r
end

function M.cancel(buffer)
  if M.state ~= 'ready' then
    return
  end
  local slot = slot_of(buffer, false)
  if slot and slots[slot].request then
    slots[slot].request.fresh = false
    slots[slot].request.on_change = function() end
    lib.hearth_cancel(handle, slot)
    drain()
  end
end

-- The buffer is gone: its slot is the next to be taken.
function M.forget(buffer)
  M.cancel(buffer)
  for _, s in pairs(slots) do
    if s.buffer == buffer then
      s.used = 0
    end
  end
end

-- For the prompt: the library, its FFI and the handle of this moment.
function M.native()
  return lib, ffi, handle
end

function M.slots()
  return slots
end

return M
