/* Gateways in trouble beside a daemon: attacks of bench_hostile. A process each; none returns. */
#ifndef GATEWAYS_H
#define GATEWAYS_H

/* Sets the daemon's socket. To be called before the others. */
void gateways_beside(const char *socket);

void gateway_killed(void);  /* twenty times a second */
void gateway_hung(void);    /* stopped, while there are thousands of events a second to tell it */
void gateway_flooded(void); /* as many half requests and lists of all objects as it accepts */

#endif
