-- For nvim.lua: a private daemon, a Neovim with the plugin that is driven over its own RPC, and a runner
-- for tests with both.
local build, folder = vim.env.HEARTH_TEST_BUILD, vim.env.HEARTH_TEST_FOLDER
local root = vim.fn.getcwd() .. '/client/nvim'
local model = 'daemon/models/hearth-code-5m-f16.gguf'
local tests, order = {}, {}

local function test(name, fn)
  tests[name] = fn
  order[#order + 1] = name
end

local function fail(format, ...)
  error(string.format(format, ...), 2)
end

local function expect(got, want, what)
  if not vim.deep_equal(got, want) then
    error(('%s: got %s, want %s'):format(what, vim.inspect(got), vim.inspect(want)), 2)
  end
end

-- ---- a daemon -------------------------------------------------------------------------------------

local daemon = { socket = folder .. '/hearth.sock' }

function daemon.start(more, file)
  local command = { build .. '/bin/hearthd', '--model', file or model, '--socket', daemon.socket,
    '--context', '8192', '--threads', '1' }
  daemon.log = {}
  daemon.job = vim.fn.jobstart(vim.list_extend(command, more or {}), {
    on_stderr = function(_, lines) vim.list_extend(daemon.log, lines) end })
  daemon.pid = vim.fn.jobpid(daemon.job)
  local up = vim.wait(120000, function()
    vim.fn.system({ build .. '/bin/hearth', 'status', '--socket', daemon.socket })
    return vim.v.shell_error == 0
  end, 50)
  if not up then
    fail('the daemon did not start: %s', table.concat(daemon.log, '\n'))
  end
end

function daemon.signal(name)
  vim.loop.kill(daemon.pid, name)
end

function daemon.stop(name)
  if daemon.job then
    daemon.signal(name or 'sigterm')
    vim.fn.jobwait({ daemon.job }, 120000)
    daemon.job = nil
  end
end

-- The answer of `hearth fim` at a position in these lines.
local function filled(lines, row, col, max_tokens)
  local path = folder .. '/asked.py'
  vim.fn.writefile(lines, path)
  local out = vim.fn.system({ build .. '/bin/hearth', 'fim', '--socket', daemon.socket,
    '--max-tokens', tostring(max_tokens), ('%s:%d:%d'):format(path, row, col + 1) })
  if vim.v.shell_error ~= 0 then
    fail('hearth fim: %s', out)
  end
  return out
end

-- ---- an editor ------------------------------------------------------------------------------------

local editor = {}

function editor.lua(code, ...)
  return vim.rpcrequest(editor.channel, 'nvim_exec_lua', code, { ... })
end

function editor.input(keys)
  vim.rpcrequest(editor.channel, 'nvim_input', keys)
end

-- A Neovim with the plugin, the file open. `options` are those of setup, `before` is Vim script that
-- runs before the plugin does.
function editor.start(options, path, before)
  local o = vim.tbl_extend('keep', options or {}, { socket = daemon.socket })
  editor.channel = vim.fn.jobstart({ 'nvim', '--embed', '--headless', '-u', 'NONE', '-i', 'NONE',
    '-n', '--cmd', 'set rtp^=' .. vim.fn.fnameescape(root) }, { rpc = true })
  editor.lua('vim.g.hearth = ...', o)
  editor.lua([[_G.notices = {}
    vim.notify = function(line) table.insert(_G.notices, line) end]])
  editor.lua('vim.cmd(...)', 'set hidden shiftwidth=4 expandtab autoindent')
  if before then
    editor.lua('vim.cmd(...)', before)
  end
  if path then
    editor.lua('vim.cmd("edit " .. vim.fn.fnameescape(...))', path)
  end
  editor.lua('vim.cmd("runtime plugin/hearth.lua")')
end

function editor.stop()
  if editor.channel then
    pcall(vim.rpcnotify, editor.channel, 'nvim_command', 'qa!')
    vim.fn.jobwait({ editor.channel }, 2000)
    vim.fn.jobstop(editor.channel)
    editor.channel = nil
  end
end

-- Waits until the code in the editor gives something true; returns it.
function editor.wait(what, code, ...)
  local got
  local arguments = { ... }
  if not vim.wait(120000, function()
    got = editor.lua(code, unpack(arguments))
    return got ~= nil and got ~= vim.NIL and got ~= false
  end, 10) then
    error(('waited in vain for %s: %s\n%s'):format(what, table.concat(
      editor.lua('return require("hearth").status_lines()'), '\n'),
      vim.inspect(editor.lua('return _G.notices'))), 2)
  end
  return got
end

function editor.ready()
  editor.wait('the daemon', 'return require("hearth").status().state == "ready"')
end

-- Waits until the sent keys and the work they have scheduled are done: keys run before calls, and calls
-- run in order with scheduled work.
local function settle()
  editor.lua('_G.settled = false vim.schedule(function() _G.settled = true end)')
  editor.wait('the keys', 'return _G.settled')
end

-- The ghost, when its answer is complete.
function editor.ghost()
  settle()
  return editor.wait('a ghost', [[
    local s = require('hearth.complete').session(vim.api.nvim_get_current_buf())
    return s.request and s.request.done and not s.request.fresh and s.ghost and require('hearth').visible()
      and s.ghost.text]])
end

-- The newest request has its answer, shown or not.
function editor.answered()
  settle()
  return editor.wait('an answer', [[
    local s = require('hearth.complete').session(vim.api.nvim_get_current_buf())
    return not s.job and s.request and s.request.done and not s.request.fresh and { prompt = s.request.prompt_tokens or 0,
      cached = s.request.cached_tokens or 0, output = s.request.output_tokens or 0 }]])
end

function editor.lines()
  return editor.lua('return vim.api.nvim_buf_get_lines(0, 0, -1, false)')
end

function editor.status()
  return editor.lua([[
    local s = require('hearth').status()
    return { counts = s.counts, longest = s.longest_us, kind = s.longest_kind,
      computed = s.computed_us, times = s.times, pieces = s.pieces, state = s.state }]])
end

-- At each redraw: the text before the cursor, and the ghost.
local function record_draws()
  editor.lua([[
    local ghost = require('hearth.ghost')
    _G.draws = {}
    local draw, clear = ghost.draw, ghost.clear
    ghost.draw = function(buffer, row, col, text, rest)
      local before = vim.api.nvim_buf_get_text(buffer, 0, 0, row, col, {})
      table.insert(_G.draws, { before = table.concat(before, '\n'), text = text, row = row, col = col })
      return draw(buffer, row, col, text, rest)
    end
    ghost.clear = function(buffer)
      table.insert(_G.draws, { clear = true })
      return clear(buffer)
    end]])
end

local function draws()
  return editor.lua('local d = _G.draws; _G.draws = {}; return d')
end

-- ---- files ----------------------------------------------------------------------------------------

local function write(name, lines)
  local path = folder .. '/' .. name
  vim.fn.writefile(lines, path)
  return path
end

local small = { 'import os', '', 'def read_lines(path):', '    with open(path) as f:', '        ',
  '    return lines', '' }

-- A model of random weights: its vocabulary has the tokens, prefix first.
local function other_model()
  local path = folder .. '/other.gguf'
  if vim.fn.filereadable(path) == 0 then
    vim.fn.system({ build .. '/bin/hearth-mkmodel', '--shape', 'tiny', '--type', 'Q8_0', path })
    expect(vim.v.shell_error, 0, 'hearth-mkmodel')
  end
  return path
end

local function large(n)
  local lines = {}
  for i = 1, n do
    vim.list_extend(lines, { ('def item_%d(x):'):format(i), ('    return x + %d'):format(i), '' })
  end
  return vim.list_extend(lines, { 'def last(path):', '    ', '' })
end

-- The part of an answer that the plugin shows: so many lines, without the next one.
local function as_shown(answer, most, below)
  local lines = vim.split(answer, '\n', { plain = true })
  local n = 0
  for i, line in ipairs(lines) do
    if i > most or (i > 1 and i < #lines and line == below) then
      break
    end
    n = i
  end
  return table.concat(lines, '\n', 1, n)
end

-- ---- running ---------------------------------------------------------------------------------------

-- Runs all tests, or those whose names match NVIM_TEST, each with its own editor, and exits.
local function run()
  local failed, ran = 0, 0
  daemon.start()
  for _, name in ipairs(order) do
    if name:find(vim.env.NVIM_TEST or '') then
      ran = ran + 1
      local ok, why = xpcall(tests[name], debug.traceback)
      print((ok and 'ok   ' or 'FAIL ') .. name .. (ok and '' or ': ' .. why))
      failed = failed + (ok and 0 or 1)
      editor.stop()
      if not daemon.job then
        daemon.start()
      end
    end
  end
  daemon.stop()
  print(('%s: %d tests in Neovim, %d failed'):format(failed == 0 and 'ok' or 'FAILED', ran, failed))
  vim.cmd(failed == 0 and ran > 0 and 'qall!' or 'cquit')
end

return { test = test, fail = fail, expect = expect, daemon = daemon, filled = filled, editor = editor,
  record_draws = record_draws, draws = draws, write = write, small = small, large = large,
  other_model = other_model, as_shown = as_shown, run = run, build = build, folder = folder,
  root = root }
