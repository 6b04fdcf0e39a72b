/* fim_form: how a model was trained to fill in the middle, known from its vocabulary's token texts.
 * Pure; any thread. */
#ifndef HEARTH_CLIENT_LIB_FIM_FORM_H
#define HEARTH_CLIENT_LIB_FIM_FORM_H

#include "client/hearth.h"
#include "ipc/vocab.h"

/* Where the parts stand. PRE, SUF and MID are the tokens; "prefix" goes up to the cursor. */
enum fim_form {
    FIM_NONE = 0,        /* no such tokens */
    FIM_PSM,             /* PRE prefix SUF suffix MID */
    FIM_SPM,             /* SUF suffix PRE prefix MID */
    FIM_SPM_MID_BEFORE,  /* PRE SUF suffix MID prefix */
    FIM_SPM_WITHOUT_MID, /* SUF suffix PRE prefix */
    FIM_PLAIN,           /* prefix */
};

/* The form for a vocabulary: with HEARTH_FIM_AUTO the one it was trained for, suffix first where it
 * was trained for both. FIM_NONE where it lacks the tokens. */
enum fim_form fim_find(const struct vocab *v, enum hearth_fim_order order);

#endif
