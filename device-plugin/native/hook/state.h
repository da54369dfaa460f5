/* What the runtime's hooks share: failing with a sentence, and reading the runtime's state as JSON. PROGRAM is the
 * hook's name, for what it says. */
#pragma once

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_STATE = 1 << 20, MAX_DEPTH = 64 };

static _Noreturn void fail(const char *what, const char *why)
{
    fprintf(stderr, PROGRAM ": %s: %s\n", what, why);
    exit(1);
}

/* --- JSON: members of objects, by one walk --------------------------------------------------------- */

static const char *blank(const char *at)
{
    return at + strspn(at, " \t\r\n");
}

static const char *end_of_string(const char *at) /* at: the opening quote; NULL: not closed */
{
    for (at++; *at && *at != '"'; at++)
        if (*at == '\\' && !*++at)
            return NULL;
    return *at ? at + 1 : NULL;
}

static const char *end_of_value(const char *at)
{
    char closing[MAX_DEPTH];
    int depth = 0;
    do {
        at = blank(at);
        if (*at == '"') {
            if (!(at = end_of_string(at)))
                return NULL;
        } else if (*at == '{' || *at == '[') {
            if (depth == MAX_DEPTH)
                return NULL;
            closing[depth++] = *at++ == '{' ? '}' : ']';
        } else if (depth && *at == closing[depth - 1]) {
            depth--;
            at++;
        } else if (depth && (*at == ',' || *at == ':')) {
            at++;
        } else {
            size_t length = strcspn(at, " \t\r\n,:]}");
            if (!length)
                return NULL;
            at += length;
        }
    } while (depth);
    return at;
}

/* The value of that member of the object at `at`, or NULL. Names in another spelling (escapes) are not found. */
static const char *member(const char *at, const char *name)
{
    at = at ? blank(at) : "";
    if (*at++ != '{')
        return NULL;
    for (at = blank(at); *at == '"'; at = blank(at + 1)) {
        const char *key = at + 1, *end = end_of_string(at);
        if (!end || *(at = blank(end)) != ':')
            return NULL;
        const char *value = blank(at + 1);
        if ((size_t)(end - 1 - key) == strlen(name) && strncmp(key, name, strlen(name)) == 0)
            return value;
        if (!(at = end_of_value(value)) || *(at = blank(at)) != ',')
            return NULL;
        at = blank(at + 1) - 1;
    }
    return NULL;
}

static char *all_of(int file, size_t most, const char *what)
{
    char *text = malloc(most + 1);
    size_t length = 0;
    ssize_t more = 1;
    while (text && length < most && (more = read(file, text + length, most - length)) != 0) {
        if (more < 0 && errno == EINTR)
            continue;
        if (more < 0)
            fail(what, strerror(errno));
        length += (size_t)more;
    }
    if (!text || more)
        fail(what, text ? "is too long" : "no memory");
    text[length] = 0;
    if (strlen(text) != length)
        fail(what, "holds zero bytes");
    return text;
}

