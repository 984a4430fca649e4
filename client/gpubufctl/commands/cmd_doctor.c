/* gpubufctl doctor: looks at all that has to be right, and says what to do where it is not. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/gpubufctl/commands/commands.h"
#include "client/gpubufctl/doctor/doctor_daemon.h"
#include "client/gpubufctl/doctor/doctor_system.h"
#include "client/gpubufctl/output/json_print.h"
#include "client/gpubufctl/output/line.h"

static const struct {
    const char *name;
    enum gb_style style;
} healths[] = {
    [GB_HEALTH_OK] = {"ok", GB_STYLE_GREEN},
    [GB_HEALTH_WARN] = {"warn", GB_STYLE_YELLOW},
    [GB_HEALTH_FAIL] = {"fail", GB_STYLE_RED},
};

enum { TEXT_AT = 19 }; /* behind the longest part, "descriptors" */

static void print_text(struct gb_line *line, const char *text)
{
    gb_line_to(line, TEXT_AT);
    gb_line_text(line, GB_STYLE_NONE, text);
    gb_line_end(line);
}

static void print_findings(const struct gb_doctor *doctor)
{
    char advice[sizeof(doctor->findings->advice) + 3];
    struct gb_writer out;
    struct gb_line line;

    gb_writer_init(&out, 0);
    line = gb_line_wrapped(&out, TEXT_AT, doctor->cli->color);
    for (size_t i = 0; i < doctor->count; i++) {
        const struct gb_finding *finding = &doctor->findings[i];

        gb_line_text(&line, healths[finding->health].style, healths[finding->health].name);
        gb_line_to(&line, 6);
        gb_line_text(&line, GB_STYLE_BOLD, finding->part);
        print_text(&line, finding->text);
        if (!finding->advice[0])
            continue;
        (void)snprintf(advice, sizeof(advice), "-> %s", finding->advice);
        print_text(&line, advice);
    }
    gb_cli_print(&out);
}

static void print_json(const struct gb_doctor *doctor, bool healthy)
{
    cJSON *answer = gb_cjson("{'healthy':%i}", healthy);
    cJSON *list = cJSON_AddArrayToObject(answer, "findings");

    for (size_t i = 0; i < doctor->count; i++) {
        const struct gb_finding *finding = &doctor->findings[i];
        cJSON *item = gb_cjson("{'health':%s,'part':%s,'text':%s}", healths[finding->health].name,
                               finding->part, finding->text);

        if (finding->advice[0])
            cJSON_AddStringToObject(item, "advice", finding->advice);
        cJSON_AddItemToArray(list, item);
    }
    gb_cjson_print(answer, true);
    cJSON_Delete(answer);
}

void gb_cmd_doctor(struct gb_cli *cli, struct gb_cli_args *args)
{
    struct gb_doctor doctor = {.cli = cli};
    bool healthy = true;

    gb_doctor_check_socket(&doctor);
    gb_doctor_check_versions(&doctor);
    gb_doctor_check_memory(&doctor);
    gb_doctor_check_driver(&doctor);
    gb_doctor_check_system(&doctor);
    for (size_t i = 0; i < doctor.count; i++)
        healthy &= doctor.findings[i].health != GB_HEALTH_FAIL;
    cli->worst = healthy ? GB_STATUS_OK : GB_STATUS_FAILED;
    if (cli->json)
        print_json(&doctor, healthy);
    else
        print_findings(&doctor);
    gb_inventory_end(&doctor.memory);
    free(doctor.findings);
}
