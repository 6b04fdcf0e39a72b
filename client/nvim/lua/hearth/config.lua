-- Options: the defaults, and what the user made of them.
local M = {}

M.defaults = {
  socket = nil,            -- path of the daemon's socket; nil: $HEARTH_SOCKET, else the usual place
  model = nil,             -- in its place: the daemon that serves a model of that name
  slots = 4,               -- buffers whose context stays warm at once
  max_tokens = 64,         -- of a completion
  max_lines = 8,           -- shown of a completion; 1: never more than the rest of a line
  max_line_suffix = 8,     -- characters after the cursor up to which a completion is asked for
  auto = true,             -- complete while typing; false: only by <Plug>(hearth-complete)
  prewarm = true,          -- compute a buffer's context when it is opened
  resume_ms = 30000,       -- how long a daemon that went away is waited for
  prefix_lines = 1024,     -- most of the buffer that is sent: before the cursor, ...
  suffix_lines = 256,      -- ... and after it
  window_bytes = 65536,    -- and of both together
  step_bytes = 2048,       -- tokenized at a time, so that no callback takes a millisecond
  ring = {
    chunks = 16,           -- pieces of other buffers in the prompt; 0: none
    lines = 64,            -- of a piece
    idle_ms = 1000,        -- new pieces go into the prompt when nothing was typed for so long
  },
  filetypes = { ['*'] = true }, -- by filetype: true or false; '*' is for all others
  ignore = nil,            -- function(buffer): true for a buffer to leave alone
  highlight = 'HearthGhost',
  request = {},            -- temperature, top_k, top_p, min_p, repeat_penalty, seed, proposer, ...
  stop = {},               -- texts that end a completion
  keys = {                 -- in insert mode, while there is a completion; false: none
    accept = '<Tab>',
    accept_line = '<S-Tab>',
    accept_word = '<C-B>',
    dismiss = '<C-]>',
  },
}

M.options = vim.deepcopy(M.defaults)

local numbers = { 'slots', 'max_tokens', 'max_lines', 'max_line_suffix', 'resume_ms', 'prefix_lines',
  'suffix_lines', 'window_bytes', 'step_bytes' }

-- Fields of a request that may be set; each is a number but proposer.
local fields = { temperature = 1, top_k = 1, top_p = 1, min_p = 1, typical_p = 1, repeat_penalty = 1,
  frequency_penalty = 1, presence_penalty = 1, penalty_last_n = 1, seed = 1, priority = 1,
  deterministic = 1, proposer = 'string' }

local function check(o)
  for _, name in ipairs(numbers) do
    if type(o[name]) ~= 'number' or o[name] < 0 then
      return name .. ': give a number'
    end
  end
  if o.slots < 1 or o.slots > 64 then
    return 'slots: give 1 to 64'
  end
  for name, value in pairs(o.request) do
    local want = fields[name]
    if not want then
      return ('request.%s is unknown'):format(tostring(name))
    elseif type(value) ~= (want == 1 and 'number' or want) then
      return ('request.%s: give a %s'):format(name, want == 1 and 'number' or want)
    end
  end
  for name in pairs(o.keys) do
    if M.defaults.keys[name] == nil then
      return ('keys.%s is unknown: accept, accept_line, accept_word, dismiss'):format(tostring(name))
    end
  end
  for _, text in ipairs(o.stop) do
    if type(text) ~= 'string' or #text < 1 or #text > 256 then
      return 'stop: give texts of 1 to 256 bytes'
    end
  end
end

-- Takes the user's options. Returns nil, or one line about what is wrong (then nothing changed).
function M.set(user)
  if user ~= nil and type(user) ~= 'table' then
    return 'give a table of options'
  end
  for name in pairs(user or {}) do
    if M.defaults[name] == nil and name ~= 'socket' and name ~= 'model' and name ~= 'ignore' then
      return ('option %s is unknown: see :help hearth-options'):format(tostring(name))
    end
  end
  local o = vim.tbl_deep_extend('force', vim.deepcopy(M.defaults), user or {})
  for _, name in ipairs({ 'ring', 'filetypes', 'request', 'stop', 'keys' }) do
    if type(o[name]) ~= 'table' then
      return name .. ': give a table'
    end
  end
  local wrong = check(o)
  if wrong then
    return wrong
  end
  M.options = o
end

return M
