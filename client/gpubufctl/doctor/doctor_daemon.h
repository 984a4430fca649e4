/* The daemon's part of `gpubufctl doctor`. */
#ifndef GB_DOCTOR_DAEMON_H
#define GB_DOCTOR_DAEMON_H

#include "client/gpubufctl/doctor/doctor.h"

void gb_doctor_check_socket(struct gb_doctor *doctor); /* and connects */
void gb_doctor_check_versions(struct gb_doctor *doctor);
void gb_doctor_check_memory(struct gb_doctor *doctor);

#endif
