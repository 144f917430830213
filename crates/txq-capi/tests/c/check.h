/* What the C tests share. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "txq.h"

#define CHECK(condition)                                                                                       \
	do {                                                                                                   \
		if (!(condition)) {                                                                            \
			fprintf(stderr, "%s:%d: %s\nlast error: %s\n", __FILE__, __LINE__, #condition,         \
				txq_last_error());                                                             \
			exit(1);                                                                               \
		}                                                                                              \
	} while (0)

/* Checks that a call fails with `code`, and that the error's text contains `text`. */
#define CHECK_ERROR(call, code, text)                                                                          \
	do {                                                                                                   \
		CHECK((call) == (code));                                                                       \
		CHECK(strstr(txq_last_error(), text) != NULL);                                                 \
	} while (0)

#endif
