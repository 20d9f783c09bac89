/* The other side of the control arms: holds a known word at an address that it prints, and waits. */
#include "probe.h"

static volatile char word[64] = "untouched-word";

int main(void)
{
    say_value("address", (unsigned long)word);
    hold();
    line("word", (const char *)word);
    return 0;
}
