/* What the kinds of r_objects.c share: where they are, and the bytes that they send. */
#ifndef R_OBJECTS_H
#define R_OBJECTS_H
#include "probe.h"
#include <sys/mman.h>
#include <sys/socket.h>

/* A directory of this process's own in the task's own file system. */
static char here[64];
static char block[65536];

static const char *path(const char *name, long number)
{
    static char text[400];
    snprintf(text, sizeof text, "%s/%s%ld", here, name, number);
    return text;
}

/* Calls `one` until it refuses, and says how often it did not. */
static inline long repeat(long each, int (*one)(long))
{
    long made = 0;
    while (made < each && one(made) >= 0)
        made++;
    return made;
}

/* Makes the object number `i` of a kind, or returns -1. */
#define ONE(kind) static int kind(__attribute__((unused)) long i)

static inline int new_file(long number)
{
    return open(path("f", number), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
}
#endif
