/* grammar_impl.h: inside a grammar: the tree that the parser makes, the automaton, its states and
 * masks. Included only by daemon/grammar/ and its tests.
 *
 * The automaton is a list of ops; a rule is the index of its first op. A stack is a list of ops to
 * return to. Stacks are not kept one by one but as nodes (a graph-structured stack): a node is a
 * set of frames (op to return to, node below) and so stands for a set of stacks with shared parts,
 * so that an ambiguous grammar does not multiply stacks. A state is a set of (op, node), each op
 * once, each op one that takes a byte, plus whether a sentence may end here. Nodes and states are
 * interned: equal sets have one number, found by a hash, so a mask is made once per set.
 *
 *   state 7   ends no    [ op 12 | node 3 ]  [ op 40 | node 3 ]
 *                                     |
 *   node 3    [ op 20, node 1 ]  [ op 33, node 1 ]          "continue at op 20 or at op 33, then ..."
 *                          |
 *   node 1    [ op 5, node 0 ]       node 0: the bottom
 *
 * When the memory limit is reached, everything that no run, walk or cached mask needs is swept, and
 * numbers change; this happens only in grammar_sweep, which updates the roots it knows.
 *
 * Limits are per answer: a state is refused if its nodes take more than GRAMMAR_STACKS_MAX bytes.
 * The total memory is never a reason to refuse, so one answer cannot fail because of others. */
#ifndef HEARTH_DAEMON_GRAMMAR_GRAMMAR_IMPL_H
#define HEARTH_DAEMON_GRAMMAR_GRAMMAR_IMPL_H

#include "daemon/grammar/grammar.h"

#include <errno.h>

#define GRAMMAR_NONE UINT32_MAX

/* ---- a growing array ------------------------------------------------------------------------- */

/* Makes room for item n. Returns 0 or -ENOMEM. */
int grammar_grow(void **items, uint32_t *room, uint32_t n, size_t item_bytes);
#define GROW(items, room, n) grammar_grow((void **)&(items), &(room), n, sizeof(*(items)))

/* ---- grammar_vocab.c ------------------------------------------------------------------------- */

/* The trie, flattened: nodes in depth-first order, children after their parent by ascending byte.
 * Node i's subtree is [i, next[i]); its tokens are ids[first[i] .. first[i + 1]). */
struct grammar_trie {
    uint32_t n_nodes, n_tokens;
    uint32_t longest; /* bytes of the longest token: the depth of the deepest node */
    uint8_t *byte;    /* [n_nodes] */
    uint16_t *depth;  /* [n_nodes], from 1 */
    uint32_t *next;   /* [n_nodes] */
    uint32_t *first;  /* [n_nodes + 1] */
    uint32_t *ids;    /* [n_tokens] */
};

enum { GRAMMAR_SHORT = 16 }; /* bytes of the longest token that is not in `long_tokens` */

/* A control token is spelled as a byte that is in no UTF-8, then its number: so it follows only
 * where a grammar names it. Tokens whose text has that byte never may. */
enum { GRAMMAR_CONTROL = 0xff, GRAMMAR_CONTROL_BYTES = 5 };
void grammar_spell_control(uint32_t id, uint8_t to[GRAMMAR_CONTROL_BYTES]);

struct grammar_vocab {
    uint32_t n_vocab, n_words; /* n_words: 64-bit words of a mask */
    uint32_t n_ends;
    uint32_t *ends;                  /* [n_ends] */
    uint32_t *at;                    /* [n_vocab + 1] bytes of token i: text[at[i], at[i + 1]) */
    uint8_t *text;                   /* [at[n_vocab]] */
    struct grammar_trie all;         /* every token that has text */
    struct grammar_trie long_tokens; /* tokens of more than GRAMMAR_SHORT bytes, */
    uint64_t *short_bits;            /* [n_words] all others */
};

/* ---- grammar_parse.c ------------------------------------------------------------------------- */

enum ast_kind {
    AST_LITERAL,  /* a: index in bytes, b: how many (0: the empty text) */
    AST_CLASS,    /* a: index in ranges, b: how many, ascending, disjoint */
    AST_RULE,     /* a: rule */
    AST_SEQUENCE, /* a: first child, AST_NONE: the empty text */
    AST_CHOICE,   /* a: first child */
    AST_REPEAT    /* a: child; b times at least, c at most (GRAMMAR_NONE: any number) */
};

struct ast {
    enum ast_kind kind;
    uint32_t a, b, c;
    uint32_t sibling; /* the next child of the same parent, or GRAMMAR_NONE */
    uint32_t at;      /* where in the text */
    uint32_t rule;    /* the rule made of it, if it is copied, or GRAMMAR_NONE */
};

struct ast_range {
    uint32_t from, to; /* code points, both included */
};

struct ast_rule {
    uint32_t name_at, name_bytes; /* in the text */
    uint32_t tree;                /* GRAMMAR_NONE: mentioned, not defined yet */
    uint32_t at;                  /* where it is defined, or first mentioned */
};

struct ast_tree {
    const char *text;
    uint32_t text_bytes;
    struct ast *nodes;
    uint32_t n_nodes, room_nodes;
    struct ast_rule *rules;
    uint32_t n_rules, room_rules, root;
    uint32_t *names; /* [n_names] hash of names: rule + 1, or 0 */
    uint32_t n_names;
    uint64_t key; /* of that hash, by chance: see struct states */
    uint8_t *bytes;
    uint32_t n_bytes, room_bytes;
    struct ast_range *ranges;
    uint32_t n_ranges, room_ranges;
    char *err;
    size_t err_bytes;
};

/* Chance for a hash of what clients choose. Returns 0 or -ENOMEM. */
int grammar_draw_key(uint64_t *ret);

/* Returns 0; -EINVAL with one line; -ENOMEM. Call grammar_tree_free in either case. */
int grammar_parse(const char *text, size_t bytes, struct ast_tree *ret, char *err,
                  size_t err_bytes);
void grammar_tree_free(struct ast_tree *t);

/* Writes "grammar line L, column C: ..." for a place in the text and returns -EINVAL. */
__attribute__((format(printf, 3, 4))) int grammar_fail(const struct ast_tree *t, uint32_t at,
                                                       const char *format, ...);

/* grammar_tree.c: finds the rule named text[at, at + bytes), or adds it. Returns its number, or
 * -errno. */
int64_t grammar_find_rule(struct ast_tree *t, uint32_t at, uint32_t bytes);

/* Checks that every rule is defined, and that there is a root. */
int grammar_check_rules(struct ast_tree *t);

/* Encodes a code point. Returns its bytes, 1 to 4. */
uint32_t grammar_utf8(uint32_t point, uint8_t *to);

/* ---- grammar_compile.c ----------------------------------------------------------------------- */

enum op_kind {
    OP_RETURN, /* the rule ends */
    OP_FAIL,   /* a dead end */
    OP_BYTE,   /* a byte of set a, then op b */
    OP_SPLIT,  /* op a or op b */
    OP_CALL    /* rule a, then op b */
};
enum { OP_AT_RETURN = 0, OP_AT_FAIL = 1 }; /* there is one op of each kind */

struct op {
    enum op_kind kind;
    uint32_t a, b;
};

struct byte_set {
    uint64_t bits[4];
};

static inline bool byte_set_has(const struct byte_set *s, uint8_t byte)
{
    return (s->bits[byte >> 6] >> (byte & 63) & 1) != 0;
}

struct program {
    struct op *ops; /* [n_ops] */
    uint32_t n_ops, room_ops;
    struct byte_set *sets;
    uint32_t n_sets, room_sets;
    uint32_t *starts; /* [n_rules] first op of the rule */
    uint32_t n_rules, room_rules;
    uint32_t root;
    uint8_t *nullable;  /* [n_rules] the rule matches the empty text */
    uint32_t *order;    /* [n_rules] rank: callers before the rules they begin with */
    uint32_t *by_order; /* [n_rules] rules by rank */
    /* An equivalent op as far as tokens of up to GRAMMAR_SHORT bytes [0] or of any length [1] can
     * tell: the copies of a counted repetition far from its end are all equivalent. */
    uint32_t *same[2];     /* [n_ops] */
    bool has_same[2];      /* some op has an equivalent */
    uint8_t class_of[256]; /* bytes that no set distinguishes form one class */
    uint8_t byte_of[256];  /* [n_classes] one byte of each class */
    uint32_t n_classes;
};

/* `longest`: bytes of the longest token. Returns as grammar_parse does. Call grammar_program_free
 * in either case. */
int grammar_compile(struct ast_tree *t, uint32_t longest, struct program *ret);
void grammar_program_free(struct program *p);

/* grammar_analyse.c: properties derived from the ops. Returns as grammar_compile; rule_at:
 * [n_rules] position of each rule in the text. */
int grammar_analyse(const struct ast_tree *t, const uint32_t *rule_at, struct program *p);

/* ---- grammar_state.c ------------------------------------------------------------------------- */

struct stack_frame {
    uint32_t op, node; /* op GRAMMAR_NONE: the bottom; in a state: a sentence may end here */
};

/* A node or a state: frames[at, at + n), by ascending (op, node). */
struct frame_set {
    uint32_t at, n, hash;
    uint32_t same[2]; /* result of grammar_state_same, GRAMMAR_NONE: not known yet */
};

struct set_table {
    struct stack_frame *frames;
    uint32_t n_frames, room_frames;
    struct frame_set *sets; /* sets, in an order in which a node follows the nodes it is made of */
    uint32_t n, room;
    uint32_t *slots; /* [n_slots] number + 1, or 0 */
    uint32_t n_slots;
    uint32_t hidden[2]; /* numbers not found by their frames, or GRAMMAR_NONE */
};

enum { NODE_BOTTOM = 0 };
/* Numbers of the first states. STATE_UNKNOWN is not a set, and STATE_TWIN, the start that ignores a
 * space, has the same frames as STATE_START: neither is found by its frames. */
enum { STATE_UNKNOWN, STATE_DEAD, STATE_START, STATE_TWIN, STATE_NUMBERS };

/* Sorts and removes duplicates. Returns how many are left. */
uint32_t frames_sort(struct stack_frame *f, uint32_t n);
uint32_t frames_hash(uint64_t key, const struct stack_frame *f, uint32_t n);

/* Finds a set of sorted frames. Returns its number, or GRAMMAR_NONE. */
uint32_t sets_find(const struct set_table *t, const struct stack_frame *f, uint32_t n,
                   uint32_t hash);

/* Adds a new set. Returns its number or -ENOMEM. It can be found after sets_put, for which
 * sets_grow keeps slots: at least twice as many as there are sets. */
int64_t sets_add(struct set_table *t, const struct stack_frame *f, uint32_t n, uint32_t hash);
void sets_put(struct set_table *t, uint32_t number);
int sets_grow(struct set_table *t);

/* Removes unmarked sets: to[number] is the new number, or 0 for a set to remove; number 0 stays.
 * node_to: the same for the nodes in their frames; key: of frames_hash. */
void sets_compact(struct set_table *t, const uint32_t *to, const uint32_t *node_to, uint64_t key);
static inline bool number_stays(const uint32_t *to, uint32_t i)
{
    return i == 0 || to[i] != 0;
}

struct frame_list {
    struct stack_frame *items; /* [n] */
    uint32_t n, room;
};

/* Returns 0, -E2BIG or -ENOMEM. */
static inline int frames_push(struct frame_list *l, uint32_t op, uint32_t node)
{
    if (l->n > 4 * GRAMMAR_WIDTH_MAX)
        return -E2BIG;
    if (GROW(l->items, l->room, l->n) < 0)
        return -ENOMEM;
    l->items[l->n++] = (struct stack_frame){op, node};
    return 0;
}

/* The result of uniting a set of nodes into one. Whether that is possible depends only on the nodes
 * themselves, not on earlier unions or on numbers. */
struct united {
    uint32_t node;  /* the node that has all their stacks, or GRAMMAR_NONE: too much work */
    uint32_t cost;  /* in frames: of its nodes, and of unions within it, as often as used; 0: not
                       known yet */
    uint32_t asked; /* bytes of the nodes made for it, at most UINT32_MAX */
};

struct states {
    /* Of frames_hash, by chance: clients write grammars, and must not be able to work out which
     * frames fall together. It changes no number. */
    uint64_t key;
    struct set_table nodes, sets; /* sets: the states */
    uint32_t *next;               /* [sets.n * n_classes] the state after a byte of the class */
    uint8_t *ends;                /* [sets.n] a sentence may end here */
    uint32_t *mask;               /* [sets.n] index of its cached mask + 1, or 0 */
    uint32_t *stacks; /* [sets.n] upper bound of the bytes of its nodes, or 0: not known */
    uint32_t room;    /* allocated states of these four arrays */
    size_t limit;     /* bytes of all states that trigger a sweep */
    uint32_t n_sweeps;

    /* Scratch of one step. */
    struct frame_list work, out, calls, merge;
    struct set_table unions; /* sets of nodes united since the last sweep ... */
    struct united *united;   /* [unions.n] ... and the results */
    uint32_t room_united;
    uint64_t asked;           /* bytes of the nodes that this step made or reused */
    uint64_t merged;          /* frames that this step sorted to find nodes */
    struct stack_frame *seen; /* [SEEN_SLOTS] hash table of the frames done in this step ... */
    uint32_t *seen_stamp;     /* ... valid where this equals `stamp` */
    uint32_t n_seen, n_begun, stamp; /* n_begun: ops of rules begun in this step */
    uint32_t *op_stamp;              /* [n_ops] the same for ops of rules begun in this step */
    uint32_t *call_head;             /* [n_rules] last of its frames in calls, or GRAMMAR_NONE */
    uint32_t *call_next;             /* [calls.room] */
    uint32_t room_call_next;
    uint64_t *called; /* [n_rules / 64 + 1] bit set, by rank */
    bool may_end;
};

/* ---- grammar_mask.c -------------------------------------------------------------------------- */

struct mask_entry {
    uint32_t state; /* GRAMMAR_NONE: free */
    int error;      /* why it could not be made; else 0 */
    uint32_t n_allowed;
    uint64_t used;  /* clock of its last use */
    uint64_t *bits; /* [n_words] */
    uint32_t *pops; /* [n_pops] trie nodes where the stack may be at its bottom */
    uint32_t n_pops, room_pops;
    bool has_pops; /* the list is complete */
};

/* The mask being made: a walk over a trie, in pieces. */
struct walk {
    uint32_t target; /* its state; STATE_UNKNOWN: no mask is being made */
    uint32_t entry;  /* index of the mask being filled */
    const struct grammar_trie *trie;
    uint32_t at, end;          /* trie nodes left to visit */
    uint32_t base, depth;      /* stack[base .. depth] is valid */
    uint32_t *stack;           /* [GRAMMAR_TOKEN_MAX + 1] states by depth */
    uint32_t group, part, pop; /* after pops: the next group, the mask of this one, its next pop */
    uint32_t below;            /* the state below; STATE_UNKNOWN: between groups */
    bool keeps_pops, goes_on;
    int64_t spent; /* work done, limited by WALK_MAX */
};

struct grammar {
    const struct grammar_vocab *vocab;
    struct program program;
    struct states states;
    struct grammar_run *runs; /* list */
    struct mask_entry *masks; /* [n_masks] */
    uint32_t n_masks, room_masks;
    struct walk walk;
    uint64_t clock, released; /* masks used since `released` may be in use outside */
};

/* grammar_nodes.c. Each returns a number; -ENOSPC: sweep and try again; -E2BIG: too wide;
 * -ENOMEM. */

/* Adds a new state that cannot be found yet. */
int64_t states_add(struct grammar *g, const struct stack_frame *f, uint32_t n, uint32_t hash);
/* The state, or the node, with these sorted and distinct frames. */
int64_t states_find(struct grammar *g, const struct stack_frame *f, uint32_t n);
int64_t nodes_find_sorted(struct grammar *g, const struct stack_frame *f, uint32_t n);
/* Adds a node's frames to a list. Returns as frames_push. */
int nodes_push_all(struct states *s, struct frame_list *l, uint32_t node);
/* The node with the frames of a list, in any order. */
int64_t nodes_find(struct grammar *g, const struct frame_list *l);
/* Call when nodes get new numbers. */
void nodes_forget_unions(struct states *s);

int grammar_states_open(struct grammar *g);
void grammar_states_close(struct grammar *g);

/* The state after a byte of class `class`. Returns its number; -ENOSPC: sweep and try again;
 * -E2BIG: too wide; -ENOMEM. *cost grows by the work done. */
int64_t grammar_step(struct grammar *g, uint32_t state, uint32_t class, int64_t *cost);

size_t grammar_states_bytes(const struct grammar *g);
size_t grammar_nodes_bytes(const struct grammar *g);
static inline size_t grammar_node_bytes(uint32_t n_frames)
{
    return sizeof(struct frame_set) + 2 * sizeof(uint32_t) + n_frames * sizeof(struct stack_frame);
}

/* grammar_sweep.c: drops all states that no root needs, and renumbers the others in the roots.
 * Returns 0 or -ENOMEM. *cost grows by the work done. */
int grammar_sweep(struct grammar *g, int64_t *cost);
/* Checks that an answer may be in this state. `most`: upper bound of the bytes of its nodes.
 * Returns 0, -E2BIG or -ENOMEM. */
int grammar_check_stacks(struct grammar *g, uint32_t state, uint64_t most, int64_t *cost);

/* grammar_mask.c: drops cached masks of states with more than the bottom below them, except those
 * in use. */
void grammar_forget_masks(struct grammar *g);

/* The state made of the ops in `state` whose node is `node`, with the bottom below them instead. */
int64_t grammar_state_alone(struct grammar *g, uint32_t state, uint32_t node);
/* The state after the top op of `node`, one of the nodes of `state`, has returned. */
int64_t grammar_state_below(struct grammar *g, uint32_t state, uint32_t node, int64_t *cost);
/* A state that allows the same tokens: those of at most GRAMMAR_SHORT bytes (which = 0), or all
 * (1). *budget is reduced by the work done, which may exceed what is left. */
int64_t grammar_state_same(struct grammar *g, uint32_t state, int which, int64_t *budget);
static inline bool grammar_same_known(const struct grammar *g, uint32_t state, int which)
{
    return !g->program.has_same[which] || state == STATE_TWIN ||
           g->states.sets.sets[state].same[which] != GRAMMAR_NONE;
}

int grammar_masks_open(struct grammar *g);
void grammar_masks_close(struct grammar *g);

#endif
