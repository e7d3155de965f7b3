// Register lists of wgmma: ISO_WGMMA_LIST_n is "%0, ..., %n-1", ISO_WGMMA_OUT_n(v) the accumulators as operands.
#pragma once

#define ISO_WGMMA_LIST_4 "%0, %1, %2, %3"
#define ISO_WGMMA_LIST_8 ISO_WGMMA_LIST_4 ", %4, %5, %6, %7"
#define ISO_WGMMA_LIST_12 ISO_WGMMA_LIST_8 ", %8, %9, %10, %11"
#define ISO_WGMMA_LIST_16 ISO_WGMMA_LIST_12 ", %12, %13, %14, %15"
#define ISO_WGMMA_LIST_20 ISO_WGMMA_LIST_16 ", %16, %17, %18, %19"
#define ISO_WGMMA_LIST_24 ISO_WGMMA_LIST_20 ", %20, %21, %22, %23"
#define ISO_WGMMA_LIST_28 ISO_WGMMA_LIST_24 ", %24, %25, %26, %27"
#define ISO_WGMMA_LIST_32 ISO_WGMMA_LIST_28 ", %28, %29, %30, %31"
#define ISO_WGMMA_LIST_36 ISO_WGMMA_LIST_32 ", %32, %33, %34, %35"
#define ISO_WGMMA_LIST_40 ISO_WGMMA_LIST_36 ", %36, %37, %38, %39"
#define ISO_WGMMA_LIST_44 ISO_WGMMA_LIST_40 ", %40, %41, %42, %43"
#define ISO_WGMMA_LIST_48 ISO_WGMMA_LIST_44 ", %44, %45, %46, %47"
#define ISO_WGMMA_LIST_52 ISO_WGMMA_LIST_48 ", %48, %49, %50, %51"
#define ISO_WGMMA_LIST_56 ISO_WGMMA_LIST_52 ", %52, %53, %54, %55"
#define ISO_WGMMA_LIST_60 ISO_WGMMA_LIST_56 ", %56, %57, %58, %59"
#define ISO_WGMMA_LIST_64 ISO_WGMMA_LIST_60 ", %60, %61, %62, %63"
#define ISO_WGMMA_LIST_68 ISO_WGMMA_LIST_64 ", %64, %65, %66, %67"
#define ISO_WGMMA_LIST_72 ISO_WGMMA_LIST_68 ", %68, %69, %70, %71"
#define ISO_WGMMA_LIST_76 ISO_WGMMA_LIST_72 ", %72, %73, %74, %75"
#define ISO_WGMMA_LIST_80 ISO_WGMMA_LIST_76 ", %76, %77, %78, %79"
#define ISO_WGMMA_LIST_84 ISO_WGMMA_LIST_80 ", %80, %81, %82, %83"
#define ISO_WGMMA_LIST_88 ISO_WGMMA_LIST_84 ", %84, %85, %86, %87"
#define ISO_WGMMA_LIST_92 ISO_WGMMA_LIST_88 ", %88, %89, %90, %91"
#define ISO_WGMMA_LIST_96 ISO_WGMMA_LIST_92 ", %92, %93, %94, %95"
#define ISO_WGMMA_LIST_100 ISO_WGMMA_LIST_96 ", %96, %97, %98, %99"
#define ISO_WGMMA_LIST_104 ISO_WGMMA_LIST_100 ", %100, %101, %102, %103"
#define ISO_WGMMA_LIST_108 ISO_WGMMA_LIST_104 ", %104, %105, %106, %107"
#define ISO_WGMMA_LIST_112 ISO_WGMMA_LIST_108 ", %108, %109, %110, %111"
#define ISO_WGMMA_LIST_116 ISO_WGMMA_LIST_112 ", %112, %113, %114, %115"
#define ISO_WGMMA_LIST_120 ISO_WGMMA_LIST_116 ", %116, %117, %118, %119"
#define ISO_WGMMA_LIST_124 ISO_WGMMA_LIST_120 ", %120, %121, %122, %123"
#define ISO_WGMMA_LIST_128 ISO_WGMMA_LIST_124 ", %124, %125, %126, %127"

#define ISO_WGMMA_OUT_4(v) "+f"(v[0]), "+f"(v[1]), "+f"(v[2]), "+f"(v[3])
#define ISO_WGMMA_OUT_8(v) ISO_WGMMA_OUT_4(v), "+f"(v[4]), "+f"(v[5]), "+f"(v[6]), "+f"(v[7])
#define ISO_WGMMA_OUT_12(v) ISO_WGMMA_OUT_8(v), "+f"(v[8]), "+f"(v[9]), "+f"(v[10]), "+f"(v[11])
#define ISO_WGMMA_OUT_16(v) ISO_WGMMA_OUT_12(v), "+f"(v[12]), "+f"(v[13]), "+f"(v[14]), "+f"(v[15])
#define ISO_WGMMA_OUT_20(v) ISO_WGMMA_OUT_16(v), "+f"(v[16]), "+f"(v[17]), "+f"(v[18]), "+f"(v[19])
#define ISO_WGMMA_OUT_24(v) ISO_WGMMA_OUT_20(v), "+f"(v[20]), "+f"(v[21]), "+f"(v[22]), "+f"(v[23])
#define ISO_WGMMA_OUT_28(v) ISO_WGMMA_OUT_24(v), "+f"(v[24]), "+f"(v[25]), "+f"(v[26]), "+f"(v[27])
#define ISO_WGMMA_OUT_32(v) ISO_WGMMA_OUT_28(v), "+f"(v[28]), "+f"(v[29]), "+f"(v[30]), "+f"(v[31])
#define ISO_WGMMA_OUT_36(v) ISO_WGMMA_OUT_32(v), "+f"(v[32]), "+f"(v[33]), "+f"(v[34]), "+f"(v[35])
#define ISO_WGMMA_OUT_40(v) ISO_WGMMA_OUT_36(v), "+f"(v[36]), "+f"(v[37]), "+f"(v[38]), "+f"(v[39])
#define ISO_WGMMA_OUT_44(v) ISO_WGMMA_OUT_40(v), "+f"(v[40]), "+f"(v[41]), "+f"(v[42]), "+f"(v[43])
#define ISO_WGMMA_OUT_48(v) ISO_WGMMA_OUT_44(v), "+f"(v[44]), "+f"(v[45]), "+f"(v[46]), "+f"(v[47])
#define ISO_WGMMA_OUT_52(v) ISO_WGMMA_OUT_48(v), "+f"(v[48]), "+f"(v[49]), "+f"(v[50]), "+f"(v[51])
#define ISO_WGMMA_OUT_56(v) ISO_WGMMA_OUT_52(v), "+f"(v[52]), "+f"(v[53]), "+f"(v[54]), "+f"(v[55])
#define ISO_WGMMA_OUT_60(v) ISO_WGMMA_OUT_56(v), "+f"(v[56]), "+f"(v[57]), "+f"(v[58]), "+f"(v[59])
#define ISO_WGMMA_OUT_64(v) ISO_WGMMA_OUT_60(v), "+f"(v[60]), "+f"(v[61]), "+f"(v[62]), "+f"(v[63])
#define ISO_WGMMA_OUT_68(v) ISO_WGMMA_OUT_64(v), "+f"(v[64]), "+f"(v[65]), "+f"(v[66]), "+f"(v[67])
#define ISO_WGMMA_OUT_72(v) ISO_WGMMA_OUT_68(v), "+f"(v[68]), "+f"(v[69]), "+f"(v[70]), "+f"(v[71])
#define ISO_WGMMA_OUT_76(v) ISO_WGMMA_OUT_72(v), "+f"(v[72]), "+f"(v[73]), "+f"(v[74]), "+f"(v[75])
#define ISO_WGMMA_OUT_80(v) ISO_WGMMA_OUT_76(v), "+f"(v[76]), "+f"(v[77]), "+f"(v[78]), "+f"(v[79])
#define ISO_WGMMA_OUT_84(v) ISO_WGMMA_OUT_80(v), "+f"(v[80]), "+f"(v[81]), "+f"(v[82]), "+f"(v[83])
#define ISO_WGMMA_OUT_88(v) ISO_WGMMA_OUT_84(v), "+f"(v[84]), "+f"(v[85]), "+f"(v[86]), "+f"(v[87])
#define ISO_WGMMA_OUT_92(v) ISO_WGMMA_OUT_88(v), "+f"(v[88]), "+f"(v[89]), "+f"(v[90]), "+f"(v[91])
#define ISO_WGMMA_OUT_96(v) ISO_WGMMA_OUT_92(v), "+f"(v[92]), "+f"(v[93]), "+f"(v[94]), "+f"(v[95])
#define ISO_WGMMA_OUT_100(v) ISO_WGMMA_OUT_96(v), "+f"(v[96]), "+f"(v[97]), "+f"(v[98]), "+f"(v[99])
#define ISO_WGMMA_OUT_104(v) ISO_WGMMA_OUT_100(v), "+f"(v[100]), "+f"(v[101]), "+f"(v[102]), "+f"(v[103])
#define ISO_WGMMA_OUT_108(v) ISO_WGMMA_OUT_104(v), "+f"(v[104]), "+f"(v[105]), "+f"(v[106]), "+f"(v[107])
#define ISO_WGMMA_OUT_112(v) ISO_WGMMA_OUT_108(v), "+f"(v[108]), "+f"(v[109]), "+f"(v[110]), "+f"(v[111])
#define ISO_WGMMA_OUT_116(v) ISO_WGMMA_OUT_112(v), "+f"(v[112]), "+f"(v[113]), "+f"(v[114]), "+f"(v[115])
#define ISO_WGMMA_OUT_120(v) ISO_WGMMA_OUT_116(v), "+f"(v[116]), "+f"(v[117]), "+f"(v[118]), "+f"(v[119])
#define ISO_WGMMA_OUT_124(v) ISO_WGMMA_OUT_120(v), "+f"(v[120]), "+f"(v[121]), "+f"(v[122]), "+f"(v[123])
#define ISO_WGMMA_OUT_128(v) ISO_WGMMA_OUT_124(v), "+f"(v[124]), "+f"(v[125]), "+f"(v[126]), "+f"(v[127])
