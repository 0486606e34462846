#include <cstdio>

#include "cli/version.h"

int main() { std::printf("rooftile %s\n", rooftile::version().data()); }
