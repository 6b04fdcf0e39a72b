/*
 * contract: what the files of the contract test share. contract.c: bits, and the list of tests;
 * contract_samples.c: samples; contract_ends.c: poison, refusals, failing devices;
 * contract_upload.c: what is copied before a pass; contract_native.c, contract_fast.c: native
 * numerics; contract_pages.c: pages that are copied; contract_release.c: memory that is given back; contract_experts.c: mixtures of experts;
 * contract_cut.c: experts that do not fit; contract_states.c: recurrent layers; contract_shapes.c: odd
 * models for all of them.
 */
#ifndef HEARTH_TESTS_GPU_CONTRACT_H
#define HEARTH_TESTS_GPU_CONTRACT_H

#include <stdio.h>
#include <stdlib.h>

#include "tests/gpu/subject.h"

extern uint32_t failures;
extern const char *test_name;
extern bool first_alone; /* the first failure ends the process */

#define EXPECT(condition, ...)                                                                     \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            failures++;                                                                            \
            printf("%s: line %d: ", test_name, __LINE__);                                          \
            printf(__VA_ARGS__);                                                                   \
            printf("\n");                                                                          \
            if (first_alone)                                                                       \
                exit(1);                                                                           \
            return;                                                                                \
        }                                                                                          \
    } while (0)

/* contract_shapes.c: odd sizes; the caller sets the seed. Returns the next shape for a use and
 * advances *at, which starts as 0; false: no more. */
enum odd_use { ODD_PORTABLE, ODD_NATIVE, ODD_CUBLAS, ODD_USES };
bool next_odd_shape(enum odd_use use, uint32_t *at, struct tiny_model *ret_shape);

/* Whether the simulator runs, hundreds of times slower than a GPU: some cases are left out there. */
bool simulated(void);

/* Computes a subject's sequence on its instance in passes of `chunk` rows; expects the CPU's
 * logits. */
void check_chunks(struct subject *s, uint32_t chunk, uint64_t page_seed, const char *what);

/* The same in passes of each of these sizes, which end with 0. On the simulator once, in passes of the sizes in turn. */
void check_sizes(struct subject *s, const uint32_t *sizes, uint64_t page_seed, const char *what);

/* A subject with heads of kind `kind` of HEAD_KINDS; its tokens as two sequences in windows of all
 * sizes. */
enum { HEAD_KINDS = 11 };
void subject_of_heads(uint32_t kind, uint32_t n, struct subject *s);
void check_windows(struct subject *s, struct backend *b, uint32_t kind);

/* A sequence among others that decode and prefill, over KV of rejected drafts. */
void check_neighbours(const struct tiny_model *shape, bool native);

/* A pass of rows of up to four sequences. */
enum { OTHERS = 3, MOST_ROWS = 128 };

struct mixed {
    struct row rows[MOST_ROWS];
    struct row_result results[MOST_ROWS];
    struct pass_sequence sequences[1 + OTHERS];
    uint32_t n;
};

void add_rows(struct mixed *x, uint32_t sequence, const uint32_t *tokens, uint32_t position,
              uint32_t count, uint32_t wants);
int run_mixed(struct subject *s, struct backend *b, struct mixed *x, enum pass_kind kind);

/* contract_native.c. bound_of: how far native logits may be from the CPU's. check_near: within the
 * bound, and not equal. */
float bound_of(uint32_t type);
void check_near(float far, float bound, const char *what);
void native_rows_do_not_depend_on_their_pass(void);
void native_rows_of_every_type_do_not_depend_on_their_pass(void);
void native_rows_of_odd_shapes_do_not_depend_on_their_pass(void);
void native_windows_of_every_head_do_not_depend_on_their_pass(void);
void native_long_contexts_do_not_depend_on_their_pass(void);
void native_rows_do_not_depend_on_their_neighbours(void);
void native_rows_do_not_read_later_positions(void);
void native_rows_do_not_read_before_their_window(void);
void a_wgmma_that_adds_otherwise_is_not_used(void);
void native_numerics_have_their_own_id(void);
void native_rows_are_poisoned_beyond_f16(void);

/* contract_pages.c */
void pages_are_those_of_the_cpu(void);

/* contract_release.c */
void released_pages_are_given_back(void);
void released_states_are_given_back(void);
void pages_stay_where_memory_cannot_be_given_back(void);
void a_page_without_memory_breaks_its_instance(void);

/* contract_fast.c */
void fast_passes_are_near_and_leave_canonical_bits(void);
void a_draft_model_runs_fast_passes(void);
void cublas_is_opened_only_where_needed(void);
void matmuls_of_many_rows_use_cublas(void);
void rows_are_poisoned_after_cublas_too(void);
void a_missing_cublas_is_reported(void);

/* contract_experts.c */
void experts_of_every_type_give_the_same_bits(void);
void experts_of_odd_shapes_give_the_same_bits(void);
void tied_experts_are_the_first(void);
void a_graph_serves_every_routing(void);
void rows_that_share_experts_never_change_a_bit(void);
void a_nonfinite_score_poisons_at_its_layer(void);
void native_experts_do_not_depend_on_their_pass(void);

/* contract_cut.c */
void experts_on_the_cpu_give_the_same_bits(void);
void experts_of_odd_shapes_on_the_cpu_give_the_same_bits(void);
void neighbours_of_experts_on_the_cpu_never_change_a_bit(void);
void native_passes_take_experts_of_the_cpu(void);
void a_nonfinite_expert_on_the_cpu_poisons_at_its_layer(void);
void a_cut_pass_that_fails_breaks_its_instance(void);
void a_model_that_does_not_fit_is_refused_in_one_line(void);

/* contract_states.c */
void recurrent_layers_of_every_type_give_the_same_bits(void);
void recurrent_layers_of_odd_shapes_give_the_same_bits(void);
void short_convolutions_give_the_same_bits(void);
void mamba_layers_give_the_same_bits(void);
void every_division_of_a_text_gives_the_same_bits(void);
void texts_that_share_a_state_give_the_same_bits(void);
void states_are_described(void);
void a_poisoned_row_spoils_its_own_state_alone(void);
void a_nonfinite_number_of_a_recurrent_layer_poisons_it(void);
void native_recurrent_layers_do_not_depend_on_their_pass(void);

/* contract_mtp.c */
void drafts_of_the_next_token_layer_are_the_cpus(void);
void native_drafts_of_the_next_token_layer_are_always_the_same(void);
void a_poisoned_draft_poisons_no_other_row(void);
void a_draft_model_has_no_next_token_layer(void);

/* contract_samples.c */
void a_row_samples_from_its_own_logits(void);
void a_pass_may_sample_some_of_its_rows(void);
void samples_of_every_kind_equal_the_cpus(void);
void samples_of_a_large_vocabulary_equal_the_cpus(void);
void samples_cut_first_by_a_share_equal_the_cpus(void);
void top_p_rounds_its_share_up(void);
void invalid_parameters_are_answered_as_by_the_cpu(void);
void a_nonfinite_logit_poisons_its_row(void);

/* contract_upload.c */
void a_pass_uploads_only_its_own_rows(void);

/* contract_ends.c. may_fail: true on the simulator, which fails on command; prints a skip on a
 * GPU. */
bool may_fail(void);
void a_bad_row_poisons_its_sequence_only(void);
/* A tensor of a layer is so large that n rows of a pass are poisoned there. `alone`: each row is a
 * sequence of its own, so that none is poisoned by an earlier one. */
void check_poisoned_at(const struct tiny_model *shape, uint32_t layer, uint32_t tensor,
                       float factor, uint32_t n, bool alone);
void a_key_beyond_f16_poisons_at_its_layer(void);
void a_nonfinite_normed_part_poisons_at_its_layer(void);
void a_nonfinite_sink_or_bias_poisons_at_its_layer(void);
void bad_passes_and_limits_are_refused(void);
void a_pass_of_few_rows_is_one_launch(void);
void the_self_test_goes_beyond_a_split(void);
void a_broken_instance_stays_broken(void);
void a_lost_device_lets_every_call_return(void);

#endif
