#include "client/gpubufctl/doctor/doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void gb_doctor_find(struct gb_doctor *doctor, enum gb_health health, const char *part,
                    const char *format, ...)
{
    va_list arguments;

    if (doctor->count == doctor->room) {
        doctor->room = doctor->room * 2 + 16;
        doctor->findings = gb_grow(doctor->findings, doctor->room, sizeof(*doctor->findings));
    }
    struct gb_finding *finding = &doctor->findings[doctor->count++];
    finding->health = health;
    finding->part = part;
    finding->advice[0] = '\0';
    va_start(arguments, format);
    (void)vsnprintf(finding->text, sizeof(finding->text), format, arguments);
    va_end(arguments);
}

void gb_doctor_advise(struct gb_doctor *doctor, const char *format, ...)
{
    va_list arguments;

    if (doctor->count == 0)
        return;
    struct gb_finding *finding = &doctor->findings[doctor->count - 1];
    va_start(arguments, format);
    (void)vsnprintf(finding->advice, sizeof(finding->advice), format, arguments);
    va_end(arguments);
}
