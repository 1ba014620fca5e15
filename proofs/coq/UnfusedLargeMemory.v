(* Without fusion, in a large memory: the constant is 4 again (new ground).

   For unfused attention (as in UnfusedBound.v: q_i meets k_j at one moment, a_i meets
   v_j at another, scores may wait in fast memory, be spilled, reloaded and formed
   again) and any window length 0 < L <= M, with D = d + dv,

     L (visible pairs) D^2 <= (L (M + L - 1) + D^2 M) traffic

   For dv = d, M = k^2 >= 4 d^2 and L = 2dk, without a mask, it says

     4 nq nk d^2 <= (M + 4 d sqrt(M)) traffic

   so the constant tends to 4 as M / d^2 grows, and is above 2 from M = 16 d^2 on:
   to leading order no unfused schedule beats flash2 when M is much larger than d^2.

   Hypotheses: 0 < dv; the execution is valid and complete.

   Proof: cut the execution into windows of L arrivals of q, k, v and a words.  A
   window sees at most M + L of them.  A pair whose score is formed and absorbed in
   one window puts its D^2 word pairs together among them.  Any other pair had its
   score in fast memory when the window began (at most M of these per window) or
   loaded it.  A load pays for its arrival; an accumulator word made anew arrives only
   if it is stored before it is dropped, and that store pays.  Source: derived here. *)
From Coq Require Import Arith Lia List.
From iosim Require Import Lists Machine Meeting AttentionModel FusedBound.
Import ListNotations.

(* The score that a word holds. *)
Definition score_in (w : aword) : list (nat * nat) :=
  match w with Ws i j => [(i, j)] | _ => [] end.

Lemma scores_in_fast (f : list aword) : length (flat_map score_in f) <= length f.
Proof. induction f as [| [] f IH]; cbn; lia. Qed.

Lemma filter_length_le {A} (f : A -> bool) l : length (filter f l) <= length l.
Proof. induction l as [| a l IH]; cbn; [ lia | destruct (f a); cbn; lia ]. Qed.

Section Window.
Variables (d dv : nat) (vis : list (nat * nat)) (M L : nat).
Notation X := (attention false true d dv vis).
Hypothesis L_positive : 0 < L.

(* Looking ahead: w is stored before it is dropped or made anew. *)
Fixpoint useful (w : aword) (es : list (event X)) : bool :=
  match es with
  | [] => false
  | (Store x | Add x) :: es => if aword_dec x w then true else useful w es
  | (New x | Drop x) :: es => if aword_dec x w then false else useful w es
  | (Load _ | Do _) :: es => useful w es
  end.

(* The words that count: inputs, and accumulators that will be stored. *)
Definition relevant (es : list (event X)) (w : aword) : bool :=
  match w with
  | Wq _ _ | Wk _ _ | Wv _ _ => true
  | Wa _ _ => useful w es
  | _ => false
  end.

(* All word pairs of (i, j) have met, as far as accumulator word c goes. *)
Definition met_row (paid : list (aword * aword)) (i j c : nat) : Prop :=
  forall x y, In x (q_words d i) \/ x = Wa i c -> In y (k_words d j ++ v_words dv j) -> met paid x y.

(* In state s, with the events es still to come: k windows are over; the present one
   has had r arrivals and has seen the words in seen; far holds the pairs given up,
   paid the pairs of words that have met; spent words have been loaded or stored, and
   the accumulators in debt have arrived and are still to be stored. *)
Record window (s : state X) (es : list (event X)) (k r arrivals reloads spent : nat)
    (seen : list aword) (far : list (nat * nat)) (paid : list (aword * aword))
    (debt : list aword) : Prop := {
  w_count : r <= L /\ k * L + r <= arrivals;
  w_spent : arrivals + reloads <= spent + length debt;
  w_debt : NoDup debt /\ forall w, In w debt -> In w (fast s) /\ useful w es = true;
  w_seen : NoDup seen /\ length seen <= M + r;
  w_fast : forall w, In w (fast s) -> relevant es w = true -> In w seen;
  w_size : length (fast s) <= M /\ NoDup (fast s);
  w_met : forall x y, In x seen -> In y seen -> x <> y -> met paid x y;
  w_paid : length paid <= (M + L - 1) * arrivals;
  w_far : length far <= k * M + reloads;
  w_score : forall i j, In (Score i j) (content s (Ws i j)) ->
    In (i, j) far \/ (In (Ws i j) (fast s) /\ forall x, In x (q_words d i ++ k_words d j) -> In x seen);
  w_absorbed : forall i j c,
    (In (Absorb i j) (content s (Wa i c)) /\ useful (Wa i c) es = true)
    \/ In (Absorb i j) (saved s (Wa i c)) -> In (i, j) far \/ met_row paid i j c
}.

(* A new window begins: what was seen is forgotten but for what is in fast memory. *)
Lemma window_restart s es k arrivals reloads spent seen far paid debt :
  window s es k L arrivals reloads spent seen far paid debt ->
  window s es (S k) 0 arrivals reloads spent (filter (relevant es) (fast s))
    (flat_map score_in (fast s) ++ far) paid debt.
Proof.
  intros [[C1 C2] Sp De [S1 S2] F [Z1 Z2] Me P Fa Sc Ab]. split; auto.
  - cbn. lia.
  - split; [ now apply NoDup_filter | ].
    pose proof (filter_length_le (relevant es) (fast s)). cbn in *. lia.
  - intros w Hw Hr. apply filter_In. auto.
  - intros x y Hx Hy. apply filter_In in Hx as [Hx Hx'], Hy as [Hy Hy']. auto.
  - rewrite app_length. pose proof (scores_in_fast (fast s)). cbn in *. lia.
  - intros i j H. left. apply in_or_app. destruct (Sc i j H) as [? | [Hf _]]; [ now right | left ].
    apply in_flat_map. exists (Ws i j). cbn. auto.
  - intros i j c H. destruct (Ab i j c H); [ left; apply in_or_app; now right | now right ].
Qed.

Lemma met_row_incl paid paid' i j c : incl paid paid' -> met_row paid i j c -> met_row paid' i j c.
Proof. intros I H x y Hx Hy. destruct (H x y Hx Hy); [ left | right ]; auto. Qed.

(* What an event that brings in no relevant word must keep. *)
Lemma window_quiet (s s' : state X) e es k r arrivals reloads spent seen far paid debt
    reloads' spent' far' debt' :
  window s (e :: es) k r arrivals reloads spent seen far paid debt ->
  length (fast s') <= M -> NoDup (fast s') ->
  (forall w, In w (fast s') -> relevant es w = true -> In w (fast s) /\ relevant (e :: es) w = true) ->
  (forall i j, In (Score i j) (content s' (Ws i j)) -> In (i, j) far' \/
     In (Score i j) (content s (Ws i j)) /\ (In (Ws i j) (fast s) -> In (Ws i j) (fast s'))) ->
  (forall i j c, (In (Absorb i j) (content s' (Wa i c)) /\ useful (Wa i c) es = true)
      \/ In (Absorb i j) (saved s' (Wa i c)) ->
     (In (Absorb i j) (content s (Wa i c)) /\ useful (Wa i c) (e :: es) = true)
      \/ In (Absorb i j) (saved s (Wa i c))) ->
  incl far far' -> length far' <= k * M + reloads' ->
  arrivals + reloads' <= spent' + length debt' -> NoDup debt' ->
  (forall w, In w debt' -> In w (fast s') /\ useful w es = true) ->
  window s' es k r arrivals reloads' spent' seen far' paid debt'.
Proof.
  intros [[C1 C2] Sp De [S1 S2] F [Z1 Z2] Me P Fa Sc Ab] HM HN Hf Hs Ha If Hl Hd ND HD.
  split; auto.
  - intros w Hw Hr. apply F; now apply Hf.
  - intros i j H. destruct (Hs i j H) as [? | [H1 H2]]; [ now left | ].
    destruct (Sc i j H1) as [? | [? ?]]; [ left; auto | right; auto ].
  - intros i j c H. destruct (Ab i j c (Ha i j c H)); [ left; auto | now right ].
Qed.

(* A relevant word w arrives, by Load or New. *)
Lemma window_arrive (s s' : state X) e es k r arrivals reloads spent seen far paid debt w spent' debt' :
  window s (e :: es) k r arrivals reloads spent seen far paid debt ->
  fast s' = w :: fast s -> ~ In w (fast s) -> length (fast s') <= M -> relevant es w = true ->
  (forall x, x <> w -> useful x (e :: es) = useful x es) ->
  (forall i j, content s' (Ws i j) = content s (Ws i j)) ->
  (forall i j c, (In (Absorb i j) (content s' (Wa i c)) /\ useful (Wa i c) es = true)
      \/ In (Absorb i j) (saved s' (Wa i c)) ->
     (In (Absorb i j) (content s (Wa i c)) /\ useful (Wa i c) (e :: es) = true)
      \/ In (Absorb i j) (saved s (Wa i c))) ->
  S arrivals + reloads <= spent' + length debt' -> NoDup debt' ->
  (forall x, In x debt' -> In x (fast s') /\ useful x es = true) ->
  exists k' r' seen' far' paid',
    window s' es k' r' (S arrivals) reloads spent' seen' far' paid' debt' /\
    incl far far' /\ incl paid paid'.
Proof.
  intros W E Hw HM Hrel Hu Ec Ha Hd ND HD.
  assert (Hrow : forall i j, w <> Ws i j) by (intros i j ->; discriminate).
  assert (Hrl : forall x, In x (fast s) -> relevant es x = true -> relevant (e :: es) x = true).
  { intros x Hx Hr. destruct x; trivial. unfold relevant in *. rewrite Hu; [ exact Hr | ].
    intros <-. contradiction. }
  (* when w was not among the words seen, and there is room for an arrival *)
  assert (K : forall k r seen far, window s (e :: es) k r arrivals reloads spent seen far paid debt ->
    r < L -> ~ In w seen ->
    window s' es k (S r) (S arrivals) reloads spent' (w :: seen) far
      (paid ++ meets (X := X) w seen) debt').
  { clear W k r seen far. intros k r seen far [[C1 C2] Sp De [S1 S2] F [Z1 Z2] Me P Fa Sc Ab] Hr Hs.
    split; auto.
    - lia.
    - split; [ now constructor | cbn; lia ].
    - rewrite E. intros x [<- | Hx] Hx'; [ now left | right; auto ].
    - split; [ exact HM | ]. rewrite E. now constructor.
    - intros x y [<- | Hx] [<- | Hy] Hxy; rewrite met_app; [ congruence | | | ].
      + right. now apply (meets_met (X := X)).
      + right. destruct (meets_met (X := X) w seen x Hx); [ now right | now left ].
      + left. auto.
    - rewrite app_length. unfold meets. rewrite map_length. change (word X) with aword in *. lia.
    - intros i j H. rewrite Ec in H. destruct (Sc i j H) as [? | [Hf Hx]]; [ now left | right ].
      rewrite E. split; [ now right | ]. intros x Hx'. right. auto.
    - intros i j c H. destruct (Ab i j c (Ha i j c H)) as [? | H']; [ now left | right ].
      revert H'. apply met_row_incl, incl_appl, incl_refl. }
  destruct (in_dec aword_dec w seen) as [Hs | Hs].
  - exists k, r, seen, far, paid. split; [ | split; apply incl_refl ].
    destruct W as [[C1 C2] Sp De [S1 S2] F [Z1 Z2] Me P Fa Sc Ab]. split; auto.
    + rewrite E. intros x [<- | Hx] Hx'; auto.
    + split; [ exact HM | ]. rewrite E. now constructor.
    + lia.
    + intros i j H. rewrite Ec in H. destruct (Sc i j H) as [? | [Hf Hx]]; [ now left | right ].
      rewrite E. split; [ now right | exact Hx ].
  - destruct (Nat.lt_ge_cases r L) as [Hr | Hr].
    + exists k, (S r), (w :: seen), far, (paid ++ meets (X := X) w seen).
      split; [ now apply K | split; [ apply incl_refl | apply incl_appl, incl_refl ] ].
    + assert (r = L) as -> by (pose proof (proj1 (w_count _ _ _ _ _ _ _ _ _ _ _ W)); lia).
      apply window_restart in W.
      exists (S k), 1, (w :: filter (relevant (e :: es)) (fast s)), (flat_map score_in (fast s) ++ far),
        (paid ++ meets (X := X) w (filter (relevant (e :: es)) (fast s))).
      split; [ | split; [ apply incl_appr, incl_refl | apply incl_appl, incl_refl ] ].
      apply K; trivial. rewrite filter_In. tauto.
Qed.

(* lia, knowing that the words of the model are aword. *)
Ltac alia := change (word X) with aword in *; cbn [length] in *; lia.

Lemma useful_load x w es : useful x (@Load X w :: es) = useful x es.
Proof. reflexivity. Qed.

Lemma window_step (s : state X) e es k r arrivals reloads spent seen far paid debt :
  window s (e :: es) k r arrivals reloads spent seen far paid debt ->
  allowed s e -> length (fast (step s e)) <= M ->
  exists k' r' arrivals' reloads' seen' far' paid' debt',
    window (step s e) es k' r' arrivals' reloads' (spent + (cost_load e + cost_store e))
      seen' far' paid' debt' /\
    incl far far' /\ incl paid paid'.
Proof.
  intros W He HM.
  destruct (w_size _ _ _ _ _ _ _ _ _ _ _ W) as [Z1 Z2].
  destruct (w_debt _ _ _ _ _ _ _ _ _ _ _ W) as [ND HD].
  pose proof (w_spent _ _ _ _ _ _ _ _ _ _ _ W) as Sp.
  pose proof (w_far _ _ _ _ _ _ _ _ _ _ _ W) as Fa.
  destruct e as [w | w | w | w | w | t]; cbn [cost_load cost_store].
  - (* Load *)
    assert (Ha : forall i j c,
      (In (Absorb i j) (content (step s (@Load X w)) (Wa i c)) /\ useful (Wa i c) es = true)
        \/ In (Absorb i j) (saved (step s (@Load X w)) (Wa i c)) ->
      (In (Absorb i j) (content s (Wa i c)) /\ useful (Wa i c) (@Load X w :: es) = true)
        \/ In (Absorb i j) (saved s (Wa i c))).
    { intros i j c. destruct s as [f ct m]. cbn [step content saved]. rewrite useful_load.
      destruct (aword_dec w (Wa i c)) as [-> | N].
      - rewrite (upd_same (X := X)), in_app_iff. tauto.
      - rewrite (upd_other (X := X)) by exact N. tauto. }
    assert (Hs : forall i j, In (Score i j) (content (step s (@Load X w)) (Ws i j)) ->
      w = Ws i j \/ In (Score i j) (content s (Ws i j))).
    { intros i j. destruct s as [f ct m]. cbn [step content].
      destruct (aword_dec w (Ws i j)) as [-> | N]; [ auto | ].
      rewrite (upd_other (X := X)) by exact N. auto. }
    assert (Hin : forall x, In x (fast s) -> In x (fast (step s (@Load X w)))).
    { destruct s as [f ct m]. intros x Hx. apply (enter_In (X := X)). now right. }
    (* a load that is no arrival *)
    assert (Q : (forall x, In x (fast (step s (@Load X w))) -> relevant es x = true -> In x (fast s)) ->
      NoDup (fast (step s (@Load X w))) ->
      window (step s (@Load X w)) es k r arrivals (reloads + length (score_in w)) (spent + (1 + 0))
        seen (score_in w ++ far) paid debt).
    { intros Hf HN. apply (window_quiet s _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ W); trivial.
      - intros x Hx Hr. split; [ now apply Hf | exact Hr ].
      - intros i j H. destruct (Hs i j H) as [-> | H']; [ left; now left | right; auto ].
      - apply incl_appr, incl_refl.
      - rewrite app_length. alia.
      - assert (length (score_in w) <= 1) by (destruct w; cbn; lia). alia.
      - intros x Hx. destruct (HD x Hx) as [H1 H2]. split; [ now apply Hin | exact H2 ]. }
    destruct (in_dec aword_dec w (fast s)) as [Hw | Hw].
    + assert (Ef : fast (step s (@Load X w)) = fast s).
      { destruct s as [f ct m]. cbn. unfold enter. destruct (in_dec _ w f); tauto. }
      do 8 eexists. split; [ apply Q; rewrite Ef; auto | ].
      split; [ apply incl_appr, incl_refl | apply incl_refl ].
    + assert (Ef : fast (step s (@Load X w)) = w :: fast s).
      { destruct s as [f ct m]. cbn. unfold enter. destruct (in_dec _ w f); tauto. }
      destruct (relevant es w) eqn:Hrel.
      * destruct (window_arrive s (step s (@Load X w)) _ es _ _ _ _ _ _ _ _ _ w (spent + (1 + 0)) debt W)
          as (k' & r' & seen' & far' & paid' & W' & I1 & I2); trivial.
        -- intros i j. destruct s as [f ct m]. cbn [step content]. apply (upd_other (X := X)).
           intros ->. discriminate.
        -- alia.
        -- intros x Hx. destruct (HD x Hx) as [H1 H2]. split; [ now apply Hin | exact H2 ].
        -- exists k', r', (S arrivals), reloads, seen', far', paid', debt. auto.
      * do 8 eexists. split; [ apply Q; rewrite Ef | ].
        -- intros x [<- | Hx] Hr; [ congruence | exact Hx ].
        -- now constructor.
        -- split; [ apply incl_appr, incl_refl | apply incl_refl ].
  - (* New *)
    destruct He as [Hw Hi].
    assert (Ef : fast (step s (@New X w)) = w :: fast s) by now destruct s.
    assert (Hu : forall x, x <> w -> useful x (@New X w :: es) = useful x es).
    { intros x Hx. cbn. destruct (aword_dec w x); congruence. }
    assert (Hd : forall x, In x debt -> In x (w :: fast s) /\ useful x es = true).
    { intros x Hx. destruct (HD x Hx) as [H1 H2]. split; [ now right | ].
      rewrite Hu in H2; [ exact H2 | ]. intros ->. contradiction. }
    assert (Ha : forall i j c,
      (In (Absorb i j) (content (step s (@New X w)) (Wa i c)) /\ useful (Wa i c) es = true)
        \/ In (Absorb i j) (saved (step s (@New X w)) (Wa i c)) ->
      (In (Absorb i j) (content s (Wa i c)) /\ useful (Wa i c) (@New X w :: es) = true)
        \/ In (Absorb i j) (saved s (Wa i c))).
    { intros i j c. destruct (aword_dec w (Wa i c)) as [-> | N].
      - destruct s as [f ct m]. cbn [step content saved]. rewrite (upd_same (X := X)).
        intros [[[] _] | H]. now right.
      - rewrite Hu by congruence. destruct s as [f ct m]. cbn [step content saved].
        now rewrite (upd_other (X := X)) by exact N. }
    destruct (relevant es w) eqn:Hrel.
    + destruct (window_arrive s (step s (@New X w)) _ es _ _ _ _ _ _ _ _ _ w (spent + (0 + 0)) (w :: debt) W)
        as (k' & r' & seen' & far' & paid' & W' & I1 & I2); trivial.
      * intros i j. destruct s as [f ct m]. cbn [step content]. apply (upd_other (X := X)).
        intros ->. discriminate.
      * alia.
      * constructor; [ intros H; apply Hw; now apply HD | exact ND ].
      * rewrite Ef. intros x [<- | Hx]; [ | now apply Hd ]. split; [ now left | ].
        destruct w; try discriminate Hi; exact Hrel || discriminate Hrel.
      * exists k', r', (S arrivals), reloads, seen', far', paid', (w :: debt). auto.
    + exists k, r, arrivals, reloads, seen, far, paid, debt.
      split; [ | split; apply incl_refl ].
      apply (window_quiet s _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ W); rewrite ?Ef; trivial.
      * now rewrite <- Ef.
      * now constructor.
      * intros x [<- | Hx] Hr; [ congruence | ]. split; [ exact Hx | ].
        destruct x; trivial. unfold relevant in *. rewrite Hu; [ exact Hr | ].
        intros <-. contradiction.
      * intros i j. destruct s as [f ct m]. cbn [step content fast].
        destruct (aword_dec w (Ws i j)) as [-> | N].
        -- rewrite (upd_same (X := X)). intros [].
        -- rewrite (upd_other (X := X)) by exact N. cbn. auto.
      * apply incl_refl.
      * alia.
  - (* Store *)
    exists k, r, arrivals, reloads, seen, far, paid, (remove aword_dec w debt).
    split; [ | split; apply incl_refl ].
    destruct s as [f ct m]. cbn [step fast] in *.
    apply (window_quiet _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ W); cbn [step fast content saved]; trivial.
    + intros x Hx Hr. split; [ exact Hx | ]. destruct x; trivial. cbn in *.
      destruct (aword_dec w _); auto.
    + auto.
    + intros i j c. cbn [useful]. destruct (aword_dec w (Wa i c)) as [-> | N].
      * rewrite (upd_same (X := X)). tauto.
      * rewrite (upd_other (X := X)) by exact N. tauto.
    + apply incl_refl.
    + pose proof (remove_length aword_dec w debt ND). alia.
    + now apply remove_NoDup.
    + intros x Hx. apply in_remove in Hx as [Hx Hxw]. destruct (HD x Hx) as [H1 H2].
      split; [ exact H1 | ]. cbn in H2. destruct (aword_dec w x); congruence.
  - (* Add *)
    exists k, r, arrivals, reloads, seen, far, paid, (remove aword_dec w debt).
    split; [ | split; apply incl_refl ].
    destruct s as [f ct m]. cbn [step fast] in *.
    apply (window_quiet _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ W); cbn [step fast content saved]; trivial.
    + intros x Hx Hr. split; [ exact Hx | ]. destruct x; trivial. cbn in *.
      destruct (aword_dec w _); auto.
    + auto.
    + intros i j c. cbn [useful]. destruct (aword_dec w (Wa i c)) as [-> | N].
      * rewrite (upd_same (X := X)), in_app_iff. tauto.
      * rewrite (upd_other (X := X)) by exact N. tauto.
    + apply incl_refl.
    + pose proof (remove_length aword_dec w debt ND). alia.
    + now apply remove_NoDup.
    + intros x Hx. apply in_remove in Hx as [Hx Hxw]. destruct (HD x Hx) as [H1 H2].
      split; [ exact H1 | ]. cbn in H2. destruct (aword_dec w x); congruence.
  - (* Drop *)
    exists k, r, arrivals, reloads, seen, far, paid, debt.
    split; [ | split; apply incl_refl ].
    destruct s as [f ct m]. cbn [step fast content] in *.
    assert (Hu : forall x, x <> w -> useful x (@Drop X w :: es) = useful x es).
    { intros x Hx. cbn. destruct (aword_dec w x); congruence. }
    apply (window_quiet _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ W); cbn [step fast content saved]; trivial.
    + now apply remove_NoDup.
    + intros x Hx Hr. apply in_remove in Hx as [Hx Hxw]. split; [ exact Hx | ].
      destruct x; trivial. unfold relevant in *. now rewrite Hu.
    + intros i j. destruct (aword_dec w (Ws i j)) as [-> | N].
      * rewrite (upd_same (X := X)). intros [].
      * rewrite (upd_other (X := X)) by exact N. intros H. right. split; [ exact H | ].
        intros Hf. apply in_in_remove; auto.
    + intros i j c. destruct (aword_dec w (Wa i c)) as [-> | N].
      * rewrite (upd_same (X := X)). intros [[[] _] | H]. now right.
      * rewrite (upd_other (X := X)), Hu by congruence. tauto.
    + apply incl_refl.
    + alia.
    + intros x Hx. destruct (HD x Hx) as [H1 H2].
      assert (Hxw : x <> w).
      { intros ->. cbn in H2. destruct (aword_dec w w); congruence. }
      split; [ apply in_in_remove; auto | now rewrite <- Hu ].
  - (* Do *)
    destruct He as [Hn Hr]. exists k, r, arrivals, reloads, seen, far, paid, debt.
    split; [ | split; apply incl_refl ].
    assert (Ef : fast (step s (Do t)) = fast s) by now destruct s.
    assert (Em : saved (step s (Do t)) = saved s) by now destruct s.
    assert (Fs : forall x, In x (needs t) -> relevant es x = true -> In x seen).
    { intros x Hx Hx'. apply (w_fast _ _ _ _ _ _ _ _ _ _ _ W); [ now apply Hn | exact Hx' ]. }
    destruct W as [C Sp' De S F Z Me P Fa' Sc Ab]. rewrite Nat.add_0_r.
    split; rewrite ?Ef, ?Em; trivial.
    + (* scores *)
      intros i j H.
      assert (Ec : In (Score i j) (content s (Ws i j)) \/ t = Score i j).
      { destruct s as [f ct m]. cbn [step content] in H. unfold absorb in H.
        destruct (in_dec (word_dec X) (Ws i j) (outs t)) as [Ho | Ho]; [ | auto ].
        destruct H as [-> | H]; auto. }
      destruct Ec as [H' | ->]; [ auto | right ]. split.
      * apply Hn. cbn. rewrite !in_app_iff. cbn. auto.
      * intros x Hx. apply Fs; [ cbn; rewrite !in_app_iff in *; tauto | ].
        unfold q_words, k_words in Hx. in_words; reflexivity.
    + (* absorbed keys *)
      intros i j c H. destruct H as [[H Hu] | H]; [ | auto ].
      assert (Ec : In (Absorb i j) (content s (Wa i c)) \/ t = Absorb i j).
      { destruct s as [f ct m]. cbn [step content] in H. unfold absorb in H.
        destruct (in_dec (word_dec X) (Wa i c) (outs t)) as [Ho | Ho]; [ | auto ].
        destruct H as [-> | H]; auto. }
      destruct Ec as [H' | ->]; [ auto | ].
      cbn in Hr. destruct (Sc i j (Hr eq_refl)) as [? | [_ Hqk]]; [ now left | ].
      destruct (in_dec aword_dec (Wa i c) (a_words dv i)) as [Hc | Hc].
      2: { destruct s as [f ct m]. cbn [step content] in H. unfold absorb in H.
           destruct (in_dec (word_dec X) (Wa i c) (outs (m := X) (Absorb i j))) as [Ho | Ho]; [ | auto ].
           exfalso. cbn in Ho. apply in_app_iff in Ho as [Ho | Ho]; [ auto | ].
           cbn in Ho. intuition discriminate. }
      right. intros x y Hx Hy. apply Me.
      * destruct Hx as [Hx | ->]; [ apply Hqk, in_or_app; now left | ].
        apply Fs; [ cbn; rewrite !in_app_iff; tauto | exact Hu ].
      * apply in_app_iff in Hy as [Hy | Hy]; [ apply Hqk, in_or_app; now right | ].
        apply Fs; [ cbn; rewrite !in_app_iff; tauto | ].
        unfold v_words in Hy. in_words; reflexivity.
      * intros ->. unfold q_words, k_words, v_words in *.
        destruct Hx as [Hx | ->]; in_words.
Qed.

Lemma window_run es : forall s k r arrivals reloads spent seen far paid debt,
  window s es k r arrivals reloads spent seen far paid debt -> valid M s es ->
  exists k' r' arrivals' reloads' seen' far' paid' debt',
    window (run s es) [] k' r' arrivals' reloads' (spent + traffic es) seen' far' paid' debt'.
Proof.
  induction es as [| e es IH]; intros s k r ar rl spent seen far paid debt W V.
  - exists k, r, ar, rl, seen, far, paid, debt. cbn. now rewrite Nat.add_0_r.
  - destruct V as (He & HM & V).
    destruct (window_step _ _ _ _ _ _ _ _ _ _ _ _ W He HM)
      as (k1 & r1 & a1 & l1 & s1 & f1 & p1 & d1 & W1 & _).
    destruct (IH _ _ _ _ _ _ _ _ _ _ W1 V) as (k2 & r2 & a2 & l2 & s2 & f2 & p2 & d2 & W2).
    exists k2, r2, a2, l2, s2, f2, p2, d2. unfold traffic in *. cbn [total].
    now rewrite Nat.add_assoc.
Qed.

Theorem unfused_window_bound es : 0 < dv -> L <= M -> NoDup vis ->
  valid M (init X) es -> complete false true d dv vis (run (init X) es) ->
  L * (length vis * ((d + dv) * (d + dv)))
  <= (L * (M + L - 1) + (d + dv) * (d + dv) * M) * traffic es.
Proof.
  intros Hdv HL Hvis V C.
  destruct (window_run es (init X) 0 0 0 0 0 [] [] [] [])
    as (k & r & ar & rl & seen & far & paid & debt & W); trivial.
  { split; cbn; try contradiction; try (split; [ lia | constructor ]);
      try (split; [ constructor | ]); try lia; tauto. }
  cbn [Nat.add] in W. destruct W as [[C1 C2] Sp [_ De] _ _ _ _ P Fa _ Ab].
  assert (AB : ar + rl <= traffic es).
  { destruct debt as [| w debt]; [ cbn in Sp; lia | ].
    destruct (De w (or_introl eq_refl)) as [_ H]. discriminate H. }
  (* pairs not given up have met *)
  set (near := filter (fun p => if in_dec pair_dec p far then false else true) vis).
  assert (N1 : length near * ((d + dv) * (d + dv)) <= length paid).
  { apply (count_targets query_side owner (fused_targets d dv)).
    - now apply NoDup_filter.
    - apply fused_targets_shape.
    - apply fused_targets_owner.
    - intros [i j] x y Hp Hxy. apply filter_In in Hp as [Hp Hf].
      apply in_prod_iff in Hxy as [Hx Hy]. cbn in Hx, Hy.
      assert (G : forall c, c < dv -> In x (q_words d i) \/ x = Wa i c -> met paid x y).
      { intros c Hc Hx'. destruct (Ab i j c (or_intror (C i j c Hp Hc))) as [H | H]; [ | now apply H ].
        destruct (in_dec pair_dec (i, j) far); [ discriminate | contradiction ]. }
      apply in_app_iff in Hx as [Hx | Hx]; [ apply (G 0); auto | ].
      apply in_words in Hx as (c & Hc & <-). apply (G c); auto. }
  assert (N2 : length vis <= length near + length far).
  { rewrite <- app_length. apply NoDup_incl_length; [ exact Hvis | ].
    intros p Hp. apply in_or_app. destruct (in_dec pair_dec p far) as [H | H]; [ now right | left ].
    apply filter_In. split; [ exact Hp | ]. destruct (in_dec pair_dec p far); tauto. }
  set (D2 := (d + dv) * (d + dv)) in *. clearbody D2.
  set (A := M + L - 1) in *. clearbody A.
  clear - C1 C2 P Fa N1 N2 AB HL.
  set (v := length vis) in *. set (n := length near) in *. set (f := length far) in *.
  set (p := length paid) in *. set (c := traffic es) in *. clearbody v n f p c.
  assert (B1 : L * (v * D2) <= L * (n * D2) + L * (f * D2)).
  { rewrite <- Nat.mul_add_distr_l, <- Nat.mul_add_distr_r.
    apply Nat.mul_le_mono_l, Nat.mul_le_mono_r. exact N2. }
  assert (B2 : L * (n * D2) <= L * (A * ar)) by (apply Nat.mul_le_mono_l; lia).
  assert (B3 : L * f <= M * ar + M * rl).
  { assert (L * f <= L * (k * M + rl)) by (apply Nat.mul_le_mono_l; exact Fa).
    assert (M * (k * L) <= M * ar) by (apply Nat.mul_le_mono_l; lia).
    assert (L * rl <= M * rl) by (apply Nat.mul_le_mono_r; exact HL). lia. }
  apply (Nat.mul_le_mono_r _ _ D2) in B3.
  assert (B4 : (L * A + D2 * M) * (ar + rl) <= (L * A + D2 * M) * c) by (apply Nat.mul_le_mono_l; lia).
  lia.
Qed.
End Window.

(* dv = d, no mask, M = k^2 and windows of 2dk: the constant is 4 / (1 + 4d / k). *)
Corollary unfused_bound_large_memory d nq nk k es :
  0 < d -> 2 * d <= k ->
  valid (k * k) (init (attention false true d d (all_pairs nq nk))) es ->
  complete false true d d (all_pairs nq nk) (run (init _) es) ->
  4 * nq * nk * d * d <= (k * k + 4 * d * k) * traffic es.
Proof.
  intros Hd Hk V C.
  assert (HL : 0 < 2 * d * k) by nia.
  assert (HM : 2 * d * k <= k * k) by (apply Nat.mul_le_mono_r; exact Hk).
  pose proof (unfused_window_bound d d _ (k * k) (2 * d * k) HL es Hd HM
    (all_pairs_NoDup nq nk) V C) as H.
  rewrite all_pairs_length in H.
  set (c := traffic es) in *. clearbody c.
  apply (Nat.mul_le_mono_pos_l _ _ (2 * d * k)); [ exact HL | ].
  assert (B : (2 * d * k * (k * k + 2 * d * k - 1) + (d + d) * (d + d) * (k * k)) * c
              <= 2 * d * k * (k * k + 4 * d * k) * c).
  { apply Nat.mul_le_mono_r.
    assert (2 * d * k * (k * k + 2 * d * k - 1) <= 2 * d * k * (k * k + 2 * d * k))
      by (apply Nat.mul_le_mono_l; lia). lia. }
  lia.
Qed.
