-- What a user of the Neovim plugin sees: a real Neovim, a real daemon. Run by nvim.sh;
-- NVIM_TEST=PATTERN runs the tests whose names match.
local driver = dofile('tests/e2e/nvim_driver.lua')
local test, fail, expect, filled = driver.test, driver.fail, driver.expect, driver.filled
local daemon, editor, write = driver.daemon, driver.editor, driver.write
local small, large, other_model = driver.small, driver.large, driver.other_model
local record_draws, draws, as_shown = driver.record_draws, driver.draws, driver.as_shown
local build, folder, root = driver.build, driver.folder, driver.root

-- ---- typing ---------------------------------------------------------------------------------------

test('a ghost equals the answer of hearth fim', function()
  editor.start({ max_tokens = 24 }, write('a.py', small))
  editor.ready()
  editor.input('5GA')
  local ghost = editor.ghost()
  expect(ghost, as_shown(filled(small, 5, 8, 24), 8, '    return lines'), 'the ghost')
  editor.input('for name in ')
  editor.answered()
  local lines = vim.deepcopy(small)
  lines[5] = '        for name in '
  expect(editor.ghost(), as_shown(filled(lines, 5, #lines[5], 24), 8, '    return lines'),
    'the ghost after typing')
end)

test('a ghost is drawn after the cursor and below', function()
  editor.start({ max_tokens = 40 }, write('a.py', small))
  editor.ready()
  editor.input('5GA')
  local ghost = editor.ghost()
  local got = editor.lua([[vim.cmd('redraw')
    local row = vim.fn.screenpos(0, 5, 1).row
    local function line(at)
      local s = ''
      for col = 1, vim.o.columns do s = s .. vim.fn.screenstring(at, col) end
      return (s:gsub('%s+$', ''))
    end
    return { line(row), line(row + 1) }]])
  local lines = vim.split(ghost, '\n', { plain = true })
  expect(got[1], (('        ' .. lines[1]):gsub('%s+$', '')), 'the line on the screen')
  if #lines > 1 then
    expect(got[2], (lines[2]:gsub('%s+$', '')), 'the line below on the screen')
  end
  expect(editor.lines(), small, 'the buffer')
end)

test('what a ghost would put into the buffer is shown', function()
  editor.start({}, write('a.py', small))
  local shown = editor.lua([[local ghost = require('hearth.ghost')
    ghost.draw(0, 0, 0, 'ls\27[8m; rm\r\0\nx\ty\1', '')
    local lines = ghost.shown(0)
    ghost.clear(0)
    return lines]])
  expect(shown, { 'ls^[[8m; rm^M^@', 'x       y^A' }, 'the ghost')
end)

test('all of a ghost, a line or a word can be accepted', function()
  local path = write('a.py', small)
  local function take(key, part_of)
    editor.start({ max_tokens = 40, max_lines = 4 }, path)
    editor.ready()
    editor.input('5GA')
    local part = part_of(editor.ghost())
    editor.input(key)
    local want = vim.deepcopy(small)
    local more = vim.split('        ' .. part, '\n', { plain = true })
    table.remove(want, 5)
    for i = #more, 1, -1 do
      table.insert(want, 5, more[i])
    end
    editor.wait('the text', 'return vim.deep_equal(vim.api.nvim_buf_get_lines(0, 0, -1, false), ...)',
      want)
    expect(editor.lua('return vim.api.nvim_win_get_cursor(0)'), { 4 + #more, #more[#more] }, 'cursor')
    editor.input('<Esc>u')
    editor.wait('undo', 'return vim.deep_equal(vim.api.nvim_buf_get_lines(0, 0, -1, false), ...)',
      small)
    editor.stop()
  end
  take('<Tab>', function(g) return g end)
  take('<S-Tab>', function(g) return g:match('^\n?[^\n]*') end)
  take('<C-B>', function(g) return g:match('^%s*[%w_]+') or g:match('^%s*[^%s%w_]+') end)
end)

test('typing the text of the ghost keeps the rest of it', function()
  editor.start({ max_tokens = 40, request = { proposer = 'client' } }, write('a.py', small))
  editor.ready()
  editor.input('5GA')
  record_draws()
  for i = 1, 6 do
    local ghost = editor.ghost()
    if ghost:find('^[\n<]') or #ghost < 2 then
      break
    end
    draws()
    editor.input(ghost:sub(1, 1))
    editor.wait('the key', 'return vim.api.nvim_win_get_cursor(0)[2] == ...', 8 + i)
    local list = draws()
    if not list[1] or list[1].clear then
      fail('key %d: the ghost went away', i)
    end
    expect(list[1].text, ghost:sub(2), 'the first ghost after key ' .. i)
    expect(list[1].col, 8 + i, 'its column')
  end
  local c = editor.status().counts
  print(('  guesses: %d tokens drafted, %d held'):format(c.drafted, c.held))
  if c.drafted == 0 then
    fail('what was shown is not a guess')
  end
  if editor.status().counts.kept < 3 then
    fail('only %d keys were tried', editor.status().counts.kept)
  end
end)

-- Every ghost that was drawn is the beginning of the model's answer at the place where it was drawn,
-- or the rest of an earlier one that agrees with what was typed since.
local function check_draws(list, after, max_tokens)
  local seen = {}
  local answers, n = {}, 0
  for _, d in ipairs(list) do
    if not d.clear then
      local whole, kept = d.before .. d.text, false
      for _, other in ipairs(seen) do
        kept = kept or (#other.before < #d.before and other.whole == whole)
      end
      if not answers[d.before] then
        local lines = vim.split(d.before .. after, '\n', { plain = true })
        answers[d.before] = filled(lines, d.row + 1, d.col, max_tokens)
      end
      local says = answers[d.before]
      if not kept and says:sub(1, #d.text) ~= d.text then
        fail('after %q stood %q, but the model says %q', d.before, d.text, says)
      end
      seen[#seen + 1] = { before = d.before, whole = whole }
      n = n + 1
    end
  end
  return n
end

test('only the newest request is shown', function()
  editor.start({ max_tokens = 24 }, write('a.py', small))
  editor.ready()
  editor.input('5GA')
  editor.ghost()
  record_draws()
  local typed = 'for name in sorted(os.listdir(path)): print(name, len(name))'
  for i = 1, #typed do -- some keys together, some while an answer streams, some after it
    editor.input((typed:sub(i, i):gsub('<', '<lt>')))
    if i % 3 == 0 then
      vim.wait(i % 7 * 4)
    end
    if i % 6 == 0 then -- on a slow machine they would all come together
      editor.answered()
    end
  end
  editor.wait('all keys', 'return vim.api.nvim_get_current_line() == ...', '        ' .. typed)
  editor.answered()
  local n = check_draws(draws(), '\n' .. table.concat({ '    return lines', '' }, '\n'), 24)
  local s = editor.status()
  expect(s.counts.stale, 0, 'events of old requests')
  if n < 5 or s.counts.submits < 10 then
    fail('only %d ghosts of %d requests: nothing was tried', n, s.counts.submits)
  end
  print(('  %d requests, %d ghosts drawn'):format(s.counts.submits, n))
end)

test('moving the cursor removes the ghost', function()
  editor.start({ max_tokens = 24 }, write('a.py', small))
  editor.ready()
  editor.input('5GA')
  editor.ghost()
  record_draws()
  editor.input('<Up><End>')
  editor.answered()
  check_draws(draws(), '\n' .. table.concat({ '        ', '    return lines', '' }, '\n'), 24)
  editor.input('<Esc>')
  editor.wait('no ghost', 'return require("hearth").shown() == nil')
end)

-- ---- what is computed ------------------------------------------------------------------------------

test('an opened buffer is warm, and a keystroke computes its tokens', function()
  local lines = large(450)
  editor.start({ max_tokens = 16, prefix_lines = 2000 }, write('large.py', lines), 'autocmd BufRead * normal! GkA')
  editor.ready()
  local warm = editor.wait('the context', [[local l = require('hearth').status().last
    return l and l.done and { prompt = l.prompt_tokens, output = l.output_tokens }]])
  expect(warm.output, 0, 'tokens of the answer while warming')
  if warm.prompt < 6000 then
    fail('only %d tokens are warm', warm.prompt)
  end
  editor.input('A')
  local first = editor.answered()
  if first.prompt - first.cached > 32 + 8 then
    fail('the first completion computed %d rows', first.prompt - first.cached)
  end
  local most, n = 0, 0
  for key in ('for name in sorted(os.listdir(path)):'):gmatch('.') do
    local count = editor.status().counts.submits
    editor.input(key)
    editor.wait('the request', 'return require("hearth").status().counts.submits > ...', count)
    local a = editor.answered()
    most = math.max(most, a.prompt - a.cached)
    n = n + (a.prompt > 6000 and 1 or 0) -- 0 when the answer was cut at the line limit
  end
  if n < 20 then
    fail('only %d keystrokes were counted', n)
  end
  if most > 32 + 8 then -- a page, and the tokens that the key changed before it
    fail('a keystroke computed %d rows', most)
  end
  local s = editor.status()
  print(('  %d warm tokens; rows of a keystroke: at most %d; longest callback %.0f us (%s), computing %.0f us')
    :format(first.prompt, most, s.longest, s.kind, s.computed))
  for _, line in ipairs(s.times) do
    print('    ' .. line)
  end
end)

test('two buffers stay warm side by side', function()
  local a, b = write('one.py', large(100)), write('two.py', large(120))
  editor.start({ max_tokens = 4, ring = { chunks = 0, idle_ms = 3600000 } }, a)
  editor.ready()
  local function to(path)
    local count = editor.status().counts.warmed
    editor.lua('vim.cmd("edit " .. ...)', path)
    editor.lua('vim.cmd("normal! Gk")')
    editor.wait('warming', 'return require("hearth").status().counts.warmed > ...', count)
    return editor.answered()
  end
  editor.lua('vim.cmd("normal! Gk")')
  to(b)
  local again = to(a)
  to(b)
  local third = to(a)
  if third.prompt < 1000 or third.prompt - third.cached > 32 then
    fail('%d of %d tokens computed again', third.prompt - third.cached, third.prompt)
  end
  expect(again.prompt, third.prompt, 'the prompt')
end)

test('an unlisted buffer gives its slot back too', function()
  editor.start({ max_tokens = 4 }, write('a.py', small))
  editor.ready()
  for _, way in ipairs({ 'bwipeout', 'bdelete' }) do
    editor.lua('vim.cmd("edit " .. ...) vim.bo.buflisted = false', write(way .. '.py', large(3)))
    local buffer = editor.lua('return vim.api.nvim_get_current_buf()')
    editor.answered()
    local used = [[for _, s in pairs(require('hearth.connection').slots()) do
      if s.buffer == ... then return s.used end end]]
    if editor.lua(used, buffer) == 0 then
      fail('the buffer had no slot')
    end
    editor.lua('vim.cmd(...)', way)
    expect(editor.lua(used, buffer), 0, 'its slot after :' .. way)
  end
end)

test('the prompt of an idle buffer has chunks of other buffers', function()
  editor.start({ max_tokens = 4, ring = { idle_ms = 50 } }, write('one.py', large(20)))
  editor.ready()
  editor.answered()
  editor.input('gg10yy')
  editor.lua('vim.cmd("edit " .. ...)', write('two.py', small))
  editor.wait('pieces', 'return require("hearth").status().pieces > 0')
  local with = editor.wait('the prompt with them', [[
    local l = require('hearth').status().last
    return l and l.done and l.prompt_tokens > 150 and l.prompt_tokens]])
  editor.input('5GA')
  editor.ghost()
  local first = editor.answered()
  if first.prompt < with - 20 then
    fail('the pieces are gone: %d tokens', first.prompt)
  end
end)

-- ---- the daemon ------------------------------------------------------------------------------------

test('the plugin waits for a killed daemon', function()
  editor.start({ max_tokens = 24 }, write('a.py', small))
  editor.ready()
  editor.input('5GA')
  editor.ghost()
  daemon.stop('sigkill')
  editor.input('for name ')
  editor.wait('the keys', 'return vim.api.nvim_get_current_line() == "        for name "')
  vim.wait(300)
  editor.input('in ')
  editor.wait('the keys', 'return vim.api.nvim_get_current_line() == "        for name in "')
  local notices = editor.wait('a notice', 'return #_G.notices > 0 and _G.notices')
  if #notices ~= 1 then
    fail('%d notices: %s', #notices, vim.inspect(notices))
  end
  daemon.start()
  local lines = vim.deepcopy(small)
  lines[5] = '        for name in '
  expect(editor.ghost(), as_shown(filled(lines, 5, #lines[5], 24), 8, '    return lines'),
    'the ghost from the next daemon')
  expect(#editor.lua('return _G.notices'), 1, 'notices')
end)

test('keys do not wait while stopped daemons are asked for their models', function()
  local usual = daemon.socket
  daemon.stop()
  vim.fn.mkdir(folder .. '/hearth', 'p')
  daemon.socket = folder .. '/hearth/a.sock' -- asked first
  daemon.start()
  local stopped, stopped_pid = daemon.job, daemon.pid
  local name = vim.fn.json_decode(vim.fn.system({ build .. '/bin/hearth', 'status', '--json',
    '--socket', daemon.socket })).model
  daemon.socket = folder .. '/hearth/b.sock'
  daemon.start()
  daemon.signal('sigstop')
  vim.loop.kill(stopped_pid, 'sigstop')
  editor.start({ max_tokens = 8, model = name }, write('a.py', small))
  editor.input('5GA')
  for _ = 1, 30 do
    editor.input('x')
    local began = vim.loop.hrtime()
    editor.lua('return 1')
    if vim.loop.hrtime() - began > 1e9 then -- each of the two takes 2 s
      fail('a key waited for a daemon')
    end
    vim.wait(100)
  end
  editor.wait('the end of the search', 'return require("hearth").status().state == "down"')
  daemon.signal('sigcont')
  vim.loop.kill(stopped_pid, 'sigcont')
  editor.wait('one that says it', 'return require("hearth.connection").retry()')
  expect(editor.lua('return require("hearth").status().daemon.model'), name, 'the model')
  editor.stop()
  daemon.stop()
  daemon.job, daemon.pid = stopped, stopped_pid
  daemon.stop()
  daemon.socket = usual
  daemon.start()
end)

test('it reconnects to a daemon with another model', function()
  editor.start({ max_tokens = 8 }, write('a.py', small))
  editor.ready()
  editor.input('5GA')
  editor.ghost()
  daemon.stop('sigkill')
  daemon.start({ '--context', '512' }, other_model())
  for _ = 1, 1200 do -- a key finds the new daemon, at most one attempt a second
    editor.input('x')
    if vim.wait(100, function()
      local d = editor.lua('return require("hearth").status().daemon')
      return d.context == 512
    end, 20) then
      break
    end
  end
  expect(editor.lua('return require("hearth").status().daemon.context'), 512, 'the context')
  expect(editor.lua('return require("hearth").status().daemon.fim'), 1, 'its way of filling in')
  editor.answered() -- text of random weights, but an answer
  expect(editor.lua('return require("hearth").status().problem'), vim.NIL, 'the last problem')
  daemon.stop()
  daemon.start()
end)

test('a ghost ends with its vocabulary', function()
  for _, early in ipairs({ false, true }) do
    editor.start({ max_tokens = 24, auto = false, resume_ms = 0 }, write('a.py', small))
    editor.ready()
    editor.input('5GA')
    editor.lua('require("hearth").complete()')
    editor.ghost()
    daemon.stop('sigkill')
    editor.wait('the loss', 'return require("hearth").status().state == "down"')
    daemon.start({ '--context', '512' }, other_model())
    if early then -- a key comes after the handshake, before the editor has reported it
      local guesses = editor.lua([[
        local complete, connection = require('hearth.complete'), require('hearth.connection')
        local submit, guesses = connection.submit, {}
        connection.submit = function(buffer, request, on_change)
          table.insert(guesses, request.n_guess)
          return submit(buffer, request, on_change)
        end
        connection.retry()
        vim.wait(20000, function() return connection.state == 'ready' end, 5, true)
        complete.changed(true)
        vim.wait(20000, function() return #guesses > 0 end, 5)
        return guesses]])
      expect(guesses[1], 0, 'tokens of the old vocabulary that are guessed')
    else
      editor.lua('require("hearth.connection").retry()')
      editor.ready()
      editor.wait('no ghost', 'return require("hearth").shown() == nil')
    end
    editor.stop()
    daemon.stop()
    daemon.start()
  end
end)

test('with a prefix-first model a keystroke computes the typed line', function()
  daemon.stop()
  daemon.start({ '--context', '4096' }, other_model())
  local lines = large(60)
  vim.list_extend(lines, large(20))
  editor.start({ max_tokens = 4, ring = { chunks = 0 } }, write('large.py', lines))
  editor.ready()
  editor.input('182GA') -- in the first half: much text follows it
  local first = editor.answered()
  if first.prompt < 500 then
    fail('only %d tokens', first.prompt)
  end
  local most = 0
  for key in ('for name in sorted(names):'):gmatch('.') do
    local count = editor.status().counts.submits
    editor.input(key)
    editor.wait('the request', 'return require("hearth").status().counts.submits > ...', count)
    local a = editor.answered()
    most = math.max(most, a.prompt - a.cached)
  end
  if most > 32 + 8 then
    fail('a keystroke computed %d rows', most)
  end
  print(('  prefix first, %d tokens; rows of a keystroke: at most %d'):format(first.prompt, most))
  daemon.stop()
  daemon.start()
end)

test('a model without fill-in-the-middle tokens completes the prefix', function()
  local data = vim.env.HEARTH_TESTDATA
  if not data then
    print('skip: HEARTH_TESTDATA is not set: no model without fill-in-the-middle tokens')
    return
  end
  daemon.stop()
  daemon.start({ '--context', '512' }, data .. '/models/stories260K-f32.gguf')
  editor.start({ max_tokens = 12 }, write('a.txt', { 'Once upon a time, there was', '', 'x' }))
  editor.ready()
  expect(editor.lua('return require("hearth").status().daemon.fim'), 0, 'its way of filling in')
  editor.input('A')
  local want = vim.fn.system({ build .. '/bin/hearth', 'run', '--socket', daemon.socket,
    '--max-tokens', '12', 'Once upon a time, there was' })
  expect(editor.ghost(), as_shown(want, 8, 'x'), 'the ghost')
  editor.input(' ') -- the blank is typed: the ghost continues after it
  expect(editor.ghost(), as_shown(want:sub(2), 8, 'x'), 'the ghost after a blank')
  editor.lua('vim.cmd("checkhealth hearth")')
  local text = table.concat(editor.lines(), '\n')
  if not text:find('no fill-in-the-middle tokens', 1, true) then
    fail('checkhealth: %s', text)
  end
  daemon.stop()
  daemon.start()
end)

test('a stopped daemon does not block the editor', function()
  editor.start({ max_tokens = 8 }, write('a.py', small))
  editor.ready()
  editor.input('5GA')
  editor.ghost()
  daemon.signal('sigstop')
  local want = '        '
  for i = 1, 300 do -- more than the submit ring holds
    editor.input('x')
    want = want .. 'x'
    editor.wait('key ' .. i, 'return vim.api.nvim_get_current_line() == ...', want)
  end
  local s = editor.status()
  daemon.signal('sigcont')
  if s.counts.submits < 300 then
    fail('only %d requests', s.counts.submits)
  end
  editor.answered()
  expect(editor.status().counts.stale, 0, 'events of old requests')
  print(('  %d requests to a stopped daemon; longest callback %.0f us (%s), computing %.0f us'):format(
    s.counts.submits, s.longest, s.kind, s.computed))
end)

test('without a daemon there is one notice', function()
  daemon.stop()
  editor.start({}, write('a.py', small))
  editor.input('5GAabc')
  editor.wait('the keys', 'return vim.api.nvim_get_current_line() == "        abc"')
  vim.wait(1500)
  editor.input('d')
  editor.wait('the key', 'return vim.api.nvim_get_current_line() == "        abcd"')
  local notices = editor.wait('a notice', 'return #_G.notices > 0 and _G.notices')
  expect(#notices, 1, 'notices')
  if not notices[1]:find('no daemon at') then
    fail('it says: %s', notices[1])
  end
  daemon.start()
  vim.wait(1100)
  editor.input('e')
  editor.ghost()
end)

test('without the library there is one notice', function()
  editor.start({}, write('a.py', small), 'let g:hearth_library = "/nowhere/libhearth.so.0"')
  editor.input('5GAabcd')
  editor.wait('the keys', 'return vim.api.nvim_get_current_line() == "        abcd"')
  local notices = editor.wait('a notice', 'return #_G.notices > 0 and _G.notices')
  expect(#notices, 1, 'notices')
  if not notices[1]:find('/nowhere/libhearth.so.0', 1, true) then
    fail('it says: %s', notices[1])
  end
end)

-- ---- the rest ----------------------------------------------------------------------------------------

test('keys keep their meaning without a ghost', function()
  local path = write('a.py', { 'x', '' })
  editor.start({ auto = false }, path, 'set noexpandtab')
  editor.ready()
  editor.input('A<Tab>y<Esc>')
  editor.wait('a tab', 'return vim.api.nvim_get_current_line() == "x\ty"')
  editor.stop()
  editor.start({ auto = false }, path, 'inoremap <Tab> mine')
  editor.ready()
  editor.input('A<Tab>y<Esc>')
  editor.wait('the mapping', 'return vim.api.nvim_get_current_line() == "xminey"')
  editor.stop()
  editor.start({ auto = false }, path, 'inoremap <expr> <Tab> "e" . "xpr"')
  editor.ready()
  editor.input('A<Tab>y<Esc>')
  editor.wait('the expression', 'return vim.api.nvim_get_current_line() == "xexpry"')
end)

test('a completion menu takes precedence', function()
  editor.start({ max_tokens = 24 }, write('a.py', small))
  editor.ready()
  editor.input('5GA')
  editor.ghost()
  editor.input('re<C-N>')
  editor.wait('the menu', 'return vim.fn.pumvisible() == 1')
  vim.wait(100)
  expect(editor.lua('return require("hearth").visible()'), false, 'a ghost beside the menu')
  editor.input('<C-Y>')
  editor.wait('no menu', 'return vim.fn.pumvisible() == 0')
  editor.ghost()
end)

test('files with any line endings and tabs work', function()
  editor.start({ max_tokens = 8 }, write('a.py', small), 'set fileformats=dos,unix noexpandtab')
  editor.ready()
  editor.lua([[vim.bo.fileformat = 'dos'
    vim.api.nvim_buf_set_lines(0, 0, -1, false, { ('x = 1; '):rep(40000), 'ä = "ö"', '\tif ä:', 'a\0b' })]])
  for _, at in ipairs({ { 1, 'A#' }, { 1, '0iy' }, { 2, 'A ' }, { 2, '0a' }, { 3, 'A' }, { 4, 'A' },
                        { 4, 'o\t' }, { 1, 'O' } }) do
    editor.input('<Esc>' .. at[1] .. 'G' .. at[2])
    editor.wait('insert mode', 'return vim.api.nvim_get_mode().mode == "i" and vim.fn.line(".") >= ...',
      at[1])
    vim.wait(60)
  end
  editor.answered()
  expect(editor.lua('return vim.v.errmsg'), '', 'the last error')
  expect(editor.lua('return require("hearth").status().problem'), vim.NIL, 'the last problem')
  expect(vim.trim(editor.lua('return vim.fn.execute("messages")')), '', 'messages')
end)

test('it completes only in enabled file types and buffers', function()
  editor.start({ filetypes = { ['*'] = true, text = false }, ring = { idle_ms = 3600000 } }, write('a.py', small))
  editor.ready()
  editor.answered() -- so that the buffer is cached
  local function none(why)
    local count = editor.status().counts.submits
    editor.input('5GAx<Esc>')
    vim.wait(150)
    expect(editor.status().counts.submits, count, 'requests in ' .. why)
  end
  local count = editor.status().counts.submits
  editor.input('5GRxyz<Esc>')
  vim.wait(150)
  expect(editor.status().counts.submits, count, 'requests while overwriting')
  editor.lua('vim.cmd("setlocal filetype=text")')
  none('a file of another type')
  editor.lua('vim.cmd("setlocal filetype=python buftype=nofile")')
  none('a buffer without a file')
  editor.lua('vim.cmd("setlocal buftype=") vim.b.hearth = false')
  none('a buffer that says no')
  editor.lua('vim.b.hearth = nil vim.cmd("HearthToggle")')
  none('an editor where it is off')
  editor.lua('vim.cmd("HearthToggle")')
  editor.input('5GA')
  editor.ghost()
end)

test('an error in the options is one line', function()
  editor.start({ max_tokens = 'many' }, write('a.py', small))
  local notices = editor.wait('a notice', 'return #_G.notices > 0 and _G.notices')
  expect(notices, { 'hearth: max_tokens: give a number' }, 'notices')
end)

test('checkhealth and :HearthStatus report the state', function()
  editor.start({}, write('a.py', small))
  editor.ready()
  editor.lua('vim.cmd("checkhealth hearth")')
  local text = table.concat(editor.lines(), '\n')
  for _, want in ipairs({ 'library: ', 'libhearth.so.0', 'daemon: hearthd', 'suffix first',
    'longest callback' }) do
    if not text:find(want, 1, true) then
      fail('%q is missing in: %s', want, text)
    end
  end
  local status = editor.lua('return vim.fn.execute("HearthStatus")')
  for _, want in ipairs({ 'the daemon is ready', 'hearth code 5M', 'requests' }) do
    if not status:find(want, 1, true) then
      fail('%q is missing in: %s', want, status)
    end
  end
end)

test('help has its tags', function()
  local doc = folder .. '/doc'
  vim.fn.mkdir(doc, 'p')
  vim.fn.writefile(vim.fn.readfile(root .. '/doc/hearth.txt'), doc .. '/hearth.txt')
  vim.cmd('helptags ' .. vim.fn.fnameescape(doc))
  -- A distribution's package has no generated tags: they are kept beside the text.
  expect(vim.fn.readfile(root .. '/doc/tags'), vim.fn.readfile(doc .. '/tags'), 'client/nvim/doc/tags')
end)

driver.run()
