#include "../names.h"
