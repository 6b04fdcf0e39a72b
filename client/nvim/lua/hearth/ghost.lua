-- Text that is not there yet: drawn after the cursor, one per buffer, with one extmark that moves.
local config = require('hearth.config')

local api = vim.api
local M = {}

local space = api.nvim_create_namespace('hearth')
local inline = vim.fn.has('nvim-0.10') == 1

-- A line as it is drawn after the cursor or (`below`) at a line's beginning: tabs as blanks, since
-- virtual text has no tab stops, and other controls as the buffer would show them (^M): what is taken
-- over is what was shown.
local function drawn(line, tabstop, below)
  if not line:find('[%z\1-\31]') then
    return line
  end
  local out, at = {}, below and 0 or vim.fn.virtcol('.') - 1
  for part, control in line:gmatch('([^%z\1-\31]*)([%z\1-\31]?)') do
    out[#out + 1] = part
    at = at + vim.fn.strdisplaywidth(part)
    if control == '\t' then
      out[#out + 1] = (' '):rep(tabstop - at % tabstop)
    elseif control ~= '' then
      out[#out + 1] = '^' .. string.char(control:byte() + 64)
    end
    at = at + (control == '' and 0 or #out[#out])
  end
  return table.concat(out)
end

-- Draws `text` at (row, col), both from 0; `rest` is what the line has after the cursor. Older
-- Neovims cannot push that aside: there it is drawn anew after the text.
function M.draw(buffer, row, col, text, rest)
  local hl, tabstop = config.options.highlight, vim.bo[buffer].tabstop
  local lines = vim.split(text, '\n', { plain = true })
  local first = { { drawn(lines[1], tabstop), hl } }
  if not inline and rest ~= '' then
    first[2] = { rest, 'Normal' }
  end
  local below = {}
  for i = 2, #lines do
    below[#below + 1] = { { drawn(lines[i], tabstop, true), hl } }
  end
  api.nvim_buf_set_extmark(buffer, space, row, col, {
    id = 1,
    virt_text = first,
    virt_text_pos = inline and 'inline' or 'overlay',
    hl_mode = 'combine',
    virt_lines = #below > 0 and below or nil,
  })
end

function M.clear(buffer)
  if api.nvim_buf_is_valid(buffer) then
    api.nvim_buf_del_extmark(buffer, space, 1)
  end
end

-- What is drawn, for tests and :HearthStatus: lines of text, or nil.
function M.shown(buffer)
  local mark = api.nvim_buf_get_extmark_by_id(buffer, space, 1, { details = true })
  local details = mark[3]
  if not details or not details.virt_text then
    return nil
  end
  local lines = { details.virt_text[1][1] }
  for _, line in ipairs(details.virt_lines or {}) do
    lines[#lines + 1] = line[1][1]
  end
  return lines, mark[1], mark[2]
end

return M
