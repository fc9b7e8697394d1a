// SPDX-License-Identifier: GPL-2.0-or-later
/* Shared by the files of the program `hostile`; main.c says what it does. */
#ifndef HOSTILE_H
#define HOSTILE_H

#include <linux/fuse.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "protocol.h"

#define CLIENTS 4
#define FILES 6
/* Bytes: the largest request that the kernel may send, and the largest reply made here. */
#define REQUEST (1100 << 10)
#define BODY (160 << 10)
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum lie {
	HONEST, ERROR, SHORT, LONG, LENGTH, SHAPE, FIELD, NOISE, UNIQUE, TWICE, LATE, NEVER, NOTIFY, LIES
};

/* Shared by all processes. */
struct stage {
	_Atomic uint32_t mount; /* 0: there is none */
	_Atomic bool unmount;
	_Atomic uint64_t calls;
};

struct request {
	struct fuse_in_header head;
	uint8_t body[REQUEST];
};

struct reply {
	struct fuse_out_header head;
	uint8_t body[BODY];
};

/* How often each action or event occurred. */
struct tally {
	uint64_t replies, refused, tuned_opens, mounts, mounts_refused, deaths, complaints, told[LIES];
};

/* main.c */
extern struct stage *stage;
extern struct tally tally;
extern const char *type, *point;
extern bool unmapped, every;

/* draw.c: results depend only on the seeds. */
extern uint64_t base_seed;
void seed(uint32_t mount, uint32_t process);
uint64_t draw(void);
uint32_t below(uint32_t limit);
bool one_in(uint32_t many);
uint64_t odd(void);

/* replies.c: the reply being built, with `body_size` bytes after its header. */
extern struct request request;
extern struct reply reply;
extern size_t body_size;
void *put(size_t size);
void put_honest(uint32_t opcode);

/* lies.c */
extern sem_t notification_ready, notification_sent;
void spoil(enum lie lie);
void notify(int device);
void *send_notifications(void *unused);

/* server.c */
void serve(int device, int *pipe_ends, uint64_t budget, uint64_t honest, uint32_t often);

/* clients.c */
void start_client(int number);
void look_after_clients(void);
void end_clients(void);

/* actions.c: system calls of a client. */
void act(void);
void let_go(void);
void survive_faults(void);

/* mounts.c */
void play_mount(uint32_t number, int *pipe_ends, uint64_t left);

/* kernel_log.c */
int open_log(void);
void read_log(int log, uint32_t mount);

/* Print what failed, with errno, and exit. */
void die(const char *what);

#endif
