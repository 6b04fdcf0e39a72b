-- :checkhealth hearth
local M = {}

-- Neovim 0.7 has functions of Vim script for it, 0.8 to 0.9 vim.health.report_*, later ones none of
-- these names.
local function reporter()
  local h = vim.health or {}
  if h.start then
    return h
  end
  local r = {}
  for _, name in ipairs({ 'start', 'ok', 'warn', 'error', 'info' }) do
    r[name] = h['report_' .. name] or function(...)
      return vim.fn['health#report_' .. name](...)
    end
  end
  return r
end

local function check_model(r, d)
  if d.fim == 0 then
    r.warn(d.model .. ' has no fill-in-the-middle tokens: completions see only what stands before '
      .. 'the cursor', { 'Serve a model that was trained for it, such as Qwen2.5-Coder' })
  else
    r.ok(('%s fills in the middle, %s'):format(d.model, d.fim == 2
      and 'suffix first: a keystroke computes what was typed'
      or 'prefix first: a keystroke computes what was typed since the line began'))
  end
  if d.context < 2048 then
    r.warn(('the context has %d tokens: little of a file fits'):format(d.context),
      { 'Start hearthd with a larger --context where the model knows one' })
  end
  if d.is_away == 1 then
    r.warn('the daemon went away and is waited for', { 'Start it again' })
  end
end

function M.check()
  local r = reporter()
  local hearth, connection = require('hearth'), require('hearth.connection')
  local native = require('hearth.native')
  r.start('hearth')
  local lib, path = native.load()
  if not lib then
    r.error(path, { 'Build and install hearth (make && make install), or set g:hearth_library' })
    return
  end
  r.ok('library: ' .. path)
  hearth.start() -- `nvim -c checkhealth` comes before VimEnter
  if not hearth.is_started() then
    r.warn('the plugin was not started', { "Call require('hearth').setup{}" })
    return
  end
  connection.retry()
  vim.wait(1000, function() return connection.state ~= 'connecting' end, 10)
  if connection.state ~= 'ready' then
    r.error(connection.why or 'no daemon', { 'Start one: hearthd --model FILE',
      'Where it listens elsewhere, set the option socket or $HEARTH_SOCKET' })
  else
    local d = connection.info()
    r.ok(('daemon: %s, process %d, %s'):format(d.server_version, d.server_pid, d.socket_path))
    check_model(r, d)
  end
  local s = hearth.status()
  if s.problem then
    r.warn('last problem: ' .. s.problem)
  end
  local say = s.computed_us <= 1000 and r.ok or r.warn
  say(('longest callback: %.0f us (%s), the longest computing %.0f us'):format(s.longest_us,
    s.longest_kind, s.computed_us))
  for _, line in ipairs(s.times) do
    r.info(line)
  end
end

return M
