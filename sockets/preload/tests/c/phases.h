/* What the programs of the test of system calls have in common: see watched.c. */
#define LISTENER 3
#define PHASE 0x7769
