-- hearth: completions by a local model while you type. require('hearth').setup{} with options, or
-- nothing at all: see :help hearth.
local M = {}

local api = vim.api
local started = false
local keys_set = {} -- [lhs] = the mapping that was there, {} for none

local function notify(line)
  vim.notify('hearth: ' .. line, vim.log.levels.WARN)
end

-- ---- keys -----------------------------------------------------------------------------------------

-- Does what a key did before we took it.
function M.before(lhs)
  local previous = keys_set[lhs]
  local keys, mode = previous.rhs or '', previous.noremap == 1 and 'n' or 'm'
  if previous.callback then
    keys = previous.callback()
    if previous.expr ~= 1 then
      return
    end
  elseif previous.expr == 1 then
    keys = api.nvim_eval(previous.rhs)
  end
  keys = api.nvim_replace_termcodes(keys or '', true, true, true)
  api.nvim_feedkeys(keys, mode .. 'i', false)
end

local function map(lhs, action)
  local complete = require('hearth.complete')
  local previous = vim.fn.maparg(lhs, 'i', false, true)
  keys_set[lhs] = previous
  vim.keymap.set('i', lhs, function()
    if complete.visible() then
      return ('<C-G>u<Cmd>lua require("hearth").%s<CR>'):format(action)
    elseif vim.tbl_isempty(previous) then
      return lhs
    end
    return ('<Cmd>lua require("hearth").before(%q)<CR>'):format(lhs:gsub('<', '<lt>'))
  end, { expr = true, desc = 'hearth: ' .. action })
end

local actions = { accept = 'accept()', accept_line = 'accept("line")', accept_word = 'accept("word")',
  dismiss = 'dismiss()' }

local function set_keys(options)
  for name, action in pairs(actions) do
    vim.keymap.set('i', '<Plug>(hearth-' .. name:gsub('_', '-') .. ')',
      '<Cmd>lua require("hearth").' .. action .. '<CR>')
    if options.keys[name] then
      map(options.keys[name], action)
    end
  end
  vim.keymap.set('i', '<Plug>(hearth-complete)', '<Cmd>lua require("hearth").complete()<CR>')
end

-- ---- what the editor tells ------------------------------------------------------------------------

local function listen(options)
  local complete = require('hearth.complete')
  local connection = require('hearth.connection')
  local measure = require('hearth.measure')
  local ring = require('hearth.ring')
  local group = api.nvim_create_augroup('hearth', { clear = true })
  local idle = vim.loop.new_timer()
  local function on(events, kind, fn)
    api.nvim_create_autocmd(events, { group = group, callback = measure.wrap(kind, function(e)
      fn(e)
    end) })
  end

  local settle = measure.wrap('idle', function()
    if api.nvim_get_mode().mode:sub(1, 1) == 'i' then
      return
    elseif ring.settle() then
      complete.warm()
    else
      complete.rest()
    end
  end)
  local function rest()
    idle:start(options.ring.idle_ms, 0, vim.schedule_wrap(settle))
  end

  on({ 'TextChangedI', 'TextChangedP', 'CursorMovedI' }, 'change', function()
    if options.auto or complete.visible() then
      complete.changed()
    end
  end)
  on({ 'CompleteChanged', 'CompleteDone' }, 'menu', function()
    vim.schedule(complete.redraw) -- a menu of words comes first
  end)
  on('InsertEnter', 'change', function()
    if options.auto then
      vim.schedule(measure.wrap('change', function()
        if api.nvim_get_mode().mode:sub(1, 1) == 'i' then
          complete.changed(true)
        end
      end))
    end
  end)
  on('InsertLeave', 'leave', function(e)
    complete.stop(e.buf)
    rest()
  end)
  on('CursorMoved', 'move', rest)
  on('BufEnter', 'open', function(e)
    vim.schedule(measure.wrap('open', function()
      if api.nvim_get_current_buf() == e.buf then
        complete.warm()
      end
    end))
    rest()
  end)
  on('BufLeave', 'ring', function(e)
    complete.stop(e.buf)
    if complete.allowed(e.buf) then
      ring.add_around(e.buf)
    end
  end)
  on('BufWritePost', 'ring', function(e)
    if complete.allowed(e.buf) then
      ring.add_around(e.buf)
      rest()
    end
  end)
  on('TextYankPost', 'ring', function(e)
    if complete.allowed(e.buf) and vim.v.event.operator == 'y' then
      ring.add(e.buf, vim.v.event.regcontents)
      rest()
    end
  end)
  on({ 'BufDelete', 'BufWipeout' }, 'leave', function(e)
    complete.forget(e.buf)
  end)
  on('BufUnload', 'leave', function(e)
    if not vim.bo[e.buf].buflisted then -- it is in no list that it could be deleted from
      complete.forget(e.buf)
    end
  end)
  on('VimLeavePre', 'leave', function()
    connection.close()
  end)
  connection.on_ready = complete.on_ready
end

-- ---- for users ------------------------------------------------------------------------------------

-- Begins, with options (:help hearth-options). A mistake in them is one line, and nothing happens.
function M.setup(options)
  local config = require('hearth.config')
  local wrong = config.set(options)
  if wrong then
    notify(wrong)
    return false
  end
  for lhs, previous in pairs(keys_set) do
    pcall(vim.keymap.del, 'i', lhs)
    if not vim.tbl_isempty(previous) then
      pcall(vim.fn.mapset, 'i', false, previous)
    end
  end
  keys_set = {}
  api.nvim_set_hl(0, 'HearthGhost', { link = 'Comment', default = true })
  set_keys(config.options)
  listen(config.options)
  if started then
    require('hearth.connection').close() -- slots and socket may be others
  end
  started = true
  vim.schedule(require('hearth.measure').wrap('open', function()
    require('hearth.complete').warm()
  end))
  return true
end

function M.is_started()
  return started
end

-- Begins by itself, unless g:hearth says that it must not.
function M.start()
  local options = vim.g.hearth
  if options ~= false and options ~= 0 and not started then
    M.setup(type(options) == 'table' and options or nil)
  end
end

-- Takes over the completion that is shown: all of it, its first 'line' or 'word'. Returns whether
-- there was one.
function M.accept(what)
  return require('hearth.measure').wrap('accept', require('hearth.complete').accept)(what)
end

function M.dismiss()
  return require('hearth.complete').dismiss()
end

-- Asks for a completion here and now.
function M.complete()
  require('hearth.complete').changed(true)
end

-- Is there a completion that can be taken over?
function M.visible()
  return require("hearth.complete").visible()
end

-- The completion that is shown, as lines of text, or nil.
function M.shown()
  if not require('hearth.complete').visible() then
    return nil
  end
  return (require('hearth.ghost').shown(api.nvim_get_current_buf()))
end

-- Turns completions on or off everywhere. Returns whether they are on.
function M.toggle(on)
  local complete = require('hearth.complete')
  if on == nil then
    on = not complete.enabled
  end
  complete.enabled = on
  if on then
    require('hearth.connection').retry()
    complete.warm()
  else
    complete.stop(api.nvim_get_current_buf())
  end
  return on
end

-- What the plugin knows about itself, as a table (:HearthStatus prints it).
function M.status()
  local connection = require('hearth.connection')
  local complete = require('hearth.complete')
  local measure = require('hearth.measure')
  local longest, which, computed = measure.max()
  return {
    state = connection.state, why = connection.why, enabled = complete.enabled,
    library = require('hearth.native').path, daemon = connection.info(),
    counts = vim.tbl_extend('error', {}, connection.counts, complete.counts),
    problem = complete.problem, last = complete.last,
    pieces = #require('hearth.ring').list,
    longest_us = longest, longest_kind = which, computed_us = computed, times = measure.lines(),
  }
end

function M.status_lines()
  local s = M.status()
  local lines = { ('hearth is %s, the daemon is %s%s'):format(s.enabled and 'on' or 'off', s.state,
    s.why and ': ' .. s.why or '') }
  local function add(...)
    lines[#lines + 1] = '  ' .. string.format(...)
  end
  local d = s.daemon
  if s.state == 'ready' then
    add('%s, %d slots of %d tokens, %s%s', d.model, d.slots, d.context,
      d.fim == 2 and 'suffix first' or d.fim == 1 and 'prefix first'
        or 'no fill-in-the-middle tokens: the text after the cursor is not used',
      d.is_away == 1 and '; AWAY, waited for' or '')
  end
  if s.problem then
    add('last problem: %s', s.problem)
  end
  local c = s.counts
  add('%d requests, %d prompts warmed, %d completions shown, %d parts accepted, %d kept while typing',
    c.submits, c.warmed, c.shown, c.accepted, c.kept)
  if s.last then
    add('last: %d prompt tokens, %d of them cached; %d tokens out', s.last.prompt_tokens,
      s.last.cached_tokens, s.last.output_tokens)
  end
  add('%d of %d drafts held', c.held, c.drafted)
  add('%d pieces of other buffers in the prompt', s.pieces)
  add('longest callback %.0f us (%s), the longest computing %.0f us', s.longest_us, s.longest_kind,
    s.computed_us)
  for _, line in ipairs(s.times) do
    add('  %s', line)
  end
  return lines
end

return M
