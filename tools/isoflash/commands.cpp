#include "commands.h"

#include "option_values.h"

namespace iso::tool {

void add_commands(CLI::App& app, int& exit_code) {
  for (const auto add : {add_demo, add_pack, add_run, add_check, add_bench, add_mask, add_list, add_doctor, add_explain})
    add(app, exit_code);
  for (CLI::App* const command : app.get_subcommands([](const CLI::App*) { return true; })) refuse_empty_values(*command);
}

}  // namespace iso::tool
