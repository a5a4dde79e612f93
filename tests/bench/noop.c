/* A worker that does nothing, as small as a program can be: what is left is the cost of starting
 * it. */
int main(void) {
    return 0;
}
