// The directives that this server has. Any thread.
#pragma once

#include "resolve/directive.h"

namespace idetcd::directive {

// In the order of their handlers, as in CoreDNS, except that nothing before the cluster's names hides them.
std::span<const resolve::DirectiveType* const> directives();

// Null: there is none of this name.
const resolve::DirectiveType* findDirective(std::string_view name);

// What an operator can ask of directives whether or not the Corefile has them (control/). While a configuration is built,
// before any of its directives shares anything.
void addControlPaths(resolve::Process& process);

// Directives of CoreDNS 1.14 that this server does not have.
std::span<const std::string_view> foreignDirectives();

}  // namespace idetcd::directive
