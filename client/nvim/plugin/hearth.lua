-- Commands, and a start by itself: with g:hearth as options, unless that is false or
-- require('hearth').setup() was called.
if vim.g.loaded_hearth then
  return
end
vim.g.loaded_hearth = 1

if vim.fn.has('nvim-0.7') == 0 then
  vim.api.nvim_err_writeln('hearth: Neovim 0.7 or later is needed')
  return
end

local command = vim.api.nvim_create_user_command

command('HearthToggle', function()
  local on = require('hearth').toggle()
  vim.api.nvim_echo({ { 'hearth: completions are ' .. (on and 'on' or 'off') } }, false, {})
end, { desc = 'Turn completions on or off' })

command('HearthStatus', function()
  vim.api.nvim_echo({ { table.concat(require('hearth').status_lines(), '\n') } }, false, {})
end, { desc = 'What hearth does' })

if vim.v.vim_did_enter == 1 then
  require('hearth').start()
else
  vim.api.nvim_create_autocmd('VimEnter', {
    once = true,
    callback = function()
      require('hearth').start()
    end,
  })
end
