#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <sched.h>
#include <string.h>
#include <sys/wait.h>
extern char **environ;
static double one(char *preload, int n){
  char var[4096]; struct timespec a,b; char *env[8]; int i=0;
  if(*preload!='-'){ snprintf(var,sizeof var,"LD_PRELOAD=%s",preload); env[i++]=var; }
  env[i++]="TWINPATH_RUN_RULES=" ; env[i++]="PATH=/usr/bin:/bin"; env[i]=0;
  env[i-2]=getenv("RULESLINE");
  char *argv[]={"./zero",0};
  clock_gettime(CLOCK_MONOTONIC,&a);
  for(int k=0;k<n;k++){ pid_t p=vfork(); if(!p){ execve("/tmp/m/zero",argv,env); _exit(1);} int s; waitpid(p,&s,0); if(s) {puts("bad"); exit(1);} }
  clock_gettime(CLOCK_MONOTONIC,&b);
  return ((b.tv_sec-a.tv_sec)*1e9+(b.tv_nsec-a.tv_nsec))/n/1e3;
}
static int cmp(const void*a,const void*b){double x=*(double*)a,y=*(double*)b;return x<y?-1:x>y;}
int main(int c,char**v){
  cpu_set_t s; CPU_ZERO(&s); CPU_SET(1,&s); sched_setaffinity(0,sizeof s,&s);
  enum{R=41}; static double t[8][R];
  for(int r=0;r<R;r++) for(int i=1;i<c;i++) t[i][r]=one(v[i],60);
  for(int i=1;i<c;i++){ qsort(t[i],R,sizeof(double),cmp); printf("%8.1f us median, %8.1f min  %s\n",t[i][R/2],t[i][0],v[i]); }
}
