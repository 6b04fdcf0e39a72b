-- libhearth through LuaJIT's FFI: the declarations that the plugin needs, and where the library is.
-- The structures are those of client/hearth.h, field by field; the library takes older, shorter
-- ones, so a newer library needs no newer plugin.
local M = {}

local declarations = [[
struct hearth;
struct hearth_options {
    uint32_t size, flags, slots;
    const char *slot_name;
    int32_t connect_timeout_ms, resume_ms;
};
struct hearth_info {
    uint32_t size, context, slots, n_vocab;
    int32_t bos, eos;
    uint32_t server_pid;
    const char *model, *numerics, *fingerprint, *server_version, *socket_path;
    uint32_t is_away, resumes, fim;
};
struct hearth_chunk { const char *name; const char *text; size_t text_bytes; };
struct hearth_fim {
    uint32_t size;
    const char *prefix; size_t prefix_bytes;
    const char *suffix; size_t suffix_bytes;
    const struct hearth_chunk *extra; uint32_t n_extra;
    const char *middle; size_t middle_bytes;
    uint32_t order, max_tokens;
    size_t step_bytes;
    const char *repo, *name;
};
struct hearth_bias { uint32_t token; float value; };
struct hearth_request {
    uint32_t size, n_tokens;
    const uint32_t *tokens;
    const char *text; size_t text_bytes; uint32_t text_flags;
    uint32_t max_tokens, priority, deterministic;
    int32_t logprobs;
    float temperature; uint32_t top_k;
    float top_p, min_p, typical_p, repeat_penalty, frequency_penalty, presence_penalty;
    int32_t penalty_last_n;
    uint64_t seed;
    const struct hearth_bias *bias; uint32_t n_bias;
    uint32_t n_stop_tokens; const uint32_t *stop_tokens;
    const char *const *stops; uint32_t n_stops;
    const char *proposer;
    uint64_t cookie;
    uint32_t n_guess; const uint32_t *guess;
};
struct hearth_result {
    uint32_t reason; int32_t error; const char *error_text;
    uint32_t prompt_tokens, cached_tokens, output_tokens;
    uint32_t passes, drafted, accepted_drafts, rollbacks;
    uint64_t prefill_ns, decode_ns;
    uint32_t n_ids; const uint32_t *ids;
    const char *numerics, *receipt, *model;
};
struct hearth_event {
    uint32_t kind, slot; uint64_t cookie;
    uint32_t position, n_tokens; const uint32_t *tokens; const void *logprobs;
    const char *text; size_t text_bytes;
    uint32_t done, total; const struct hearth_result *result;
};
void hearth_options_init(struct hearth_options *, size_t);
int hearth_connect(const char *, const struct hearth_options *, struct hearth **, char *, size_t);
int hearth_ready(struct hearth *);
void hearth_close(struct hearth *);
int hearth_info(struct hearth *, struct hearth_info *);
int64_t hearth_tokenize(struct hearth *, const char *, size_t, uint32_t, uint32_t *, size_t);
int64_t hearth_detokenize(struct hearth *, const uint32_t *, size_t, uint32_t, char *, size_t);
void hearth_fim_init(struct hearth_fim *, size_t);
int64_t hearth_fim(struct hearth *, const struct hearth_fim *, uint32_t *, size_t);
void hearth_request_init(struct hearth_request *, size_t);
int hearth_submit(struct hearth *, uint32_t, const struct hearth_request *);
int hearth_cancel(struct hearth *, uint32_t);
int hearth_next(struct hearth *, uint32_t, const struct hearth_event **, int);
int hearth_fd(struct hearth *);
const char *hearth_error(const struct hearth *);
]]

-- Values of the header's enums.
M.POLLABLE, M.NONBLOCK = 1, 2
M.TOKENS, M.DONE = 1, 3
M.EOS, M.STOP, M.LENGTH, M.CANCELLED, M.SUPERSEDED, M.ERROR = 1, 2, 3, 4, 5, 6
M.ANY_SLOT = 0xffffffff
M.FIM_AUTO, M.FIM_PSM, M.FIM_SPM, M.FIM_PLAIN = 0, 1, 2, 3
M.EAGAIN, M.ENOENT, M.ECONNREFUSED = -11, -2, -111
M.EINVAL, M.ENOTSUP = -22, -95

-- The folder of this plugin: client/nvim of a checkout, or where it was installed.
local function root()
  return vim.fn.fnamemodify(debug.getinfo(1, 'S').source:sub(2), ':p:h:h:h')
end

-- Where the library may be, best first: as told, beside the plugin in a checkout, below the same
-- prefix (PREFIX/share/nvim/site/pack/dist/start/hearth), where the system's linker looks.
function M.candidates()
  local list, here = {}, root()
  if type(vim.g.hearth_library) == 'string' then
    return { vim.g.hearth_library }
  end
  for _, path in ipairs({ here .. '/../../build/lib/libhearth.so.0',
                          here .. '/../../../../../../../lib/libhearth.so.0' }) do
    if vim.loop.fs_stat(path) then
      list[#list + 1] = vim.loop.fs_realpath(path) or path
    end
  end
  list[#list + 1] = 'libhearth.so.0'
  return list
end

-- Returns the library and the path it came from, or nil and one line.
function M.load()
  if M.lib then
    return M.lib, M.path
  end
  local has_ffi, ffi = pcall(require, 'ffi')
  if not has_ffi then
    return nil, 'this Neovim has no LuaJIT: hearth needs one built with it'
  end
  local why
  for _, path in ipairs(M.candidates()) do
    local ok, lib = pcall(ffi.load, path)
    if ok then
      if not pcall(ffi.typeof, 'struct hearth_request') then
        ffi.cdef(declarations)
      end
      if not pcall(function() return lib.hearth_ready and lib.hearth_fim end) then
        return nil, path .. ' is an older libhearth: install the one of this version'
      end
      M.ffi, M.lib, M.path = ffi, lib, path
      return lib, path
    end
    why = why or tostring(lib)
  end
  return nil, 'libhearth.so.0 was not found: install hearth, or set g:hearth_library to its path ('
    .. why .. ')'
end

-- hearth_find() of the library at `path`, on a thread of libuv, whose Lua has nothing of this file.
-- Returns 0 and the socket's path, or an error and its line.
function M.find(path, model)
  local ffi = require('ffi')
  pcall(ffi.cdef, 'int hearth_find(const char *, char *, size_t, char *, size_t);')
  local socket, err = ffi.new('char[128]'), ffi.new('char[512]')
  local rc = ffi.load(path).hearth_find(model, socket, 128, err, 512)
  return rc, ffi.string(rc == 0 and socket or err)
end

-- A structure of the library with its defaults.
function M.new(name)
  local s = M.ffi.new('struct hearth_' .. name)
  M.lib['hearth_' .. name .. '_init'](s, M.ffi.sizeof(s))
  return s
end

return M
