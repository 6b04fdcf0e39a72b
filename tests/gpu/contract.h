/*
 * contract: what the files of the contract test share. contract.c: bits, and the list of tests; contract_samples.c: samples;
 * contract_ends.c: poison, refusals, devices that fail; contract_upload.c: what is copied before a pass; contract_native.c, contract_fast.c: numerics of the device's own;
 * contract_shapes.c: odd models for all of them.
 */
#ifndef HEARTH_TESTS_GPU_CONTRACT_H
#define HEARTH_TESTS_GPU_CONTRACT_H

#include <stdio.h>

#include "tests/gpu/subject.h"

extern uint32_t failures;
extern const char *test_name;

#define EXPECT(condition, ...)                                                                     \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            failures++;                                                                            \
            printf("%s: line %d: ", test_name, __LINE__);                                          \
            printf(__VA_ARGS__);                                                                   \
            printf("\n");                                                                          \
            return;                                                                                \
        }                                                                                          \
    } while (0)

/* contract_shapes.c: odd sizes, all but the seed. The next one for a use, at or behind *at, which starts as 0; false: no more. */
enum odd_use { ODD_PORTABLE, ODD_NATIVE, ODD_CUBLAS, ODD_USES };
bool next_odd_shape(enum odd_use use, uint32_t *at, struct tiny_model *ret_shape);

/* The sequence of a subject computed on its own instance in chunks of `chunk` rows, against the CPU's logits. */
void check_chunks(struct subject *s, uint32_t chunk, uint64_t page_seed, const char *what);

/* A subject of the kind of heads `kind`, of HEAD_KINDS; two sequences of its tokens in windows of all sizes side by side. */
enum { HEAD_KINDS = 9 };
void subject_of_heads(uint32_t kind, uint32_t n, struct subject *s);
void check_windows(struct subject *s, struct backend *b, uint32_t kind);

/* A sequence between others that decode and prefill, over drafts that were wrong. */
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

/* contract_native.c. bound_of: how far native logits may be from the CPU's. near: they are, and are not the same. */
float bound_of(uint32_t type);
void check_near(float far, float bound, const char *what);
void native_rows_do_not_depend_on_their_pass(void);
void native_odd_shapes_do_not_either(void);
void native_windows_of_every_head_do_not_either(void);
void native_long_contexts_do_not_either(void);
void native_rows_do_not_see_their_neighbours(void);
void native_rows_do_not_see_what_lies_behind_them(void);
void native_rows_do_not_see_what_lies_left_of_their_window(void);
void native_numerics_have_an_id_of_their_own(void);
void native_rows_are_poisoned_beyond_f16(void);

/* contract_fast.c */
void fast_passes_are_native_ones(void);
void a_draft_models_passes_are_the_fast_ones(void);
void cublas_is_opened_for_those_who_want_it_alone(void);
void matmuls_of_many_rows_are_cublass(void);
void rows_are_poisoned_behind_cublas_too(void);
void a_missing_cublas_is_said(void);

/* contract_samples.c */
void a_sample_is_that_of_its_logits(void);
void a_pass_may_have_several_samples_and_fewer_than_rows(void);
void samples_of_every_kind_are_those_of_the_cpu(void);
void samples_of_a_large_vocabulary_are_those_of_the_cpu(void);
void samples_that_begin_with_all_tokens_are_those_of_the_cpu(void);
void top_p_rounds_its_share_up(void);
void strange_parameters_are_answered_as_by_the_cpu(void);
void a_logit_that_is_not_finite_poisons_its_row(void);

/* contract_upload.c */
void a_pass_copies_what_it_has(void);

/* contract_ends.c. may_fail: the simulator fails on command; a GPU does not, which a line says. */
bool may_fail(void);
void a_bad_row_poisons_its_sequence_alone(void);
void a_key_beyond_f16_poisons_at_its_layer(void);
void a_normed_part_that_is_not_finite_poisons_at_its_layer(void);
void bad_passes_and_limits_are_refused(void);
void a_pass_of_few_rows_is_one_kernel(void);
void a_pass_of_few_rows_is_one_launch(void);
void a_device_that_cannot_wait_for_all_blocks_has_graphs(void);
void an_instance_that_broke_stays_broken(void);
void a_lost_device_lets_every_call_return(void);

#endif
