// The rows of the trainer's command line, group by group as --help shows them. The variables that
// they set are those of an Options that must outlive them.
#pragma once

#include "trainer/option_values.h"
#include "trainer/options.h"

#include <string>
#include <vector>

namespace ddprun::trainer {

struct OptionRow {
    std::string name;         ///< "--name", or several with commas
    std::string placeholder;  ///< of the value; empty: a flag
    std::string help;
    Setter set;

    /// The first name, without hyphens.
    [[nodiscard]] std::string key() const { return name.substr(2, name.find(',') - 2); }
};

struct OptionGroup {
    std::string title;
    std::vector<OptionRow> rows;
};

// data_options.cpp
[[nodiscard]] OptionGroup data_group(Options& options);

// training_options.cpp
[[nodiscard]] OptionGroup training_group(Options& options);
[[nodiscard]] OptionGroup optimizer_group(Options& options);
[[nodiscard]] OptionGroup schedule_group(Options& options);
[[nodiscard]] OptionGroup regularization_group(Options& options);

// job_options.cpp
[[nodiscard]] OptionGroup device_group(Options& options);
[[nodiscard]] OptionGroup parallel_group(Options& options);
[[nodiscard]] OptionGroup checkpoint_group(Options& options);
[[nodiscard]] OptionGroup report_group(Options& options);

}  // namespace ddprun::trainer
