/* The driver's and the system's part of `gpubufctl doctor`. */
#ifndef GB_DOCTOR_SYSTEM_H
#define GB_DOCTOR_SYSTEM_H

#include "client/gpubufctl/doctor/doctor.h"

void gb_doctor_check_driver(struct gb_doctor *doctor);
void gb_doctor_check_system(struct gb_doctor *doctor);

#endif
