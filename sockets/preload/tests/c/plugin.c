/* A library whose constructor and destructor call the program that opens it. */
void plugged(int is_end);

__attribute__((constructor)) static void begin(void)
{
	plugged(0);
}

__attribute__((destructor)) static void end(void)
{
	plugged(1);
}
